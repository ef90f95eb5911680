DELETE tally_deltas
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id BIGINT PATH '$')) AS wanted
STRAIGHT_JOIN tally_deltas ON tally_deltas.id = wanted.wanted_id
