DELETE task_logs
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN task_logs ON task_logs.task_id = UNHEX(wanted.wanted_id)
