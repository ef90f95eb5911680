DELETE artifacts
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN artifacts ON artifacts.id = UNHEX(wanted.wanted_id)
