DELETE kept_tasks
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN kept_tasks ON kept_tasks.task_id = UNHEX(wanted.task_id)
