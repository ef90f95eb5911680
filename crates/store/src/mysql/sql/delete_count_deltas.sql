DELETE count_deltas
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id BIGINT PATH '$')) AS wanted
STRAIGHT_JOIN count_deltas ON count_deltas.id = wanted.wanted_id
