DELETE FROM artifacts WHERE id IN (SELECT unhex(value) FROM json_each(?1))
