SELECT tasks.id, status, attempt, lease_token
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(wanted.task_id)
ORDER BY tasks.id
