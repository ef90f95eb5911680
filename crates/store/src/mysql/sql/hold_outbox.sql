UPDATE JSON_TABLE(?3, '$[*]' COLUMNS (id BIGINT PATH '$')) AS wanted
STRAIGHT_JOIN outbox ON outbox.id = wanted.id
SET outbox.leased_until = {now} + ?2, outbox.tries = outbox.tries + 1
