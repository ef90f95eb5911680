DELETE FROM count_deltas WHERE id IN (SELECT CAST(value AS INTEGER) FROM json_each(?1))
