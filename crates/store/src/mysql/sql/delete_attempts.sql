DELETE attempts
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN attempts ON attempts.task_id = UNHEX(wanted.wanted_id)
