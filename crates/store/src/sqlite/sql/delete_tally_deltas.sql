DELETE FROM tally_deltas WHERE id IN (SELECT value FROM json_each(?1))
