DELETE outbox
FROM JSON_TABLE(?1, '$[*]' COLUMNS (wanted_id BIGINT PATH '$')) AS wanted
STRAIGHT_JOIN outbox ON outbox.id = wanted.wanted_id
