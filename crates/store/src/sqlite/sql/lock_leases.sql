SELECT id, status, attempt, lease_token FROM tasks
WHERE id IN (SELECT unhex(value) FROM json_each(?1))
ORDER BY id
