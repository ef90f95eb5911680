SELECT tasks.id, parent_id, status
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.parent_id = UNHEX(wanted.task_id)
ORDER BY tasks.id
