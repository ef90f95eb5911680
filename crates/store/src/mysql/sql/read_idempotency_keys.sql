SELECT k.owner, k.idempotency_key, k.digest, k.task_id
FROM JSON_TABLE(?1, '$[*]' COLUMNS (owner VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.owner',
    idempotency_key VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.idempotency_key')) AS r
STRAIGHT_JOIN idempotency_keys k
    ON k.owner = CAST(r.owner AS BINARY) AND k.idempotency_key = CAST(r.idempotency_key AS BINARY)
