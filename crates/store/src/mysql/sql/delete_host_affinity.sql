DELETE host_affinity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN host_affinity ON host_affinity.task_id = UNHEX(wanted.task_id)
