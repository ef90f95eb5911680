SELECT id, parent_id, status FROM tasks
WHERE parent_id IN (SELECT unhex(value) FROM json_each(?1))
ORDER BY id
