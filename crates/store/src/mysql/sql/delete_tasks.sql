DELETE tasks
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(wanted.wanted_id)
