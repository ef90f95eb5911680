-- A key whose promise has run out is taken over; any other stays as it is. The expiry is set last: the
-- assignments before it still see the old one.
INSERT INTO idempotency_keys (owner, idempotency_key, digest, task_id, expires_at)
SELECT r.owner, r.idempotency_key, r.digest, UNHEX(r.task_id), {now} + r.ttl_us
FROM JSON_TABLE(?2, '$[*]' COLUMNS (owner VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.owner',
    idempotency_key VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.idempotency_key', digest CHAR(64) PATH '$.digest',
    task_id CHAR(32) PATH '$.task_id', ttl_us BIGINT PATH '$.ttl_us')) AS r
ON DUPLICATE KEY UPDATE
    digest = IF(idempotency_keys.expires_at <= {now}, VALUES(digest), idempotency_keys.digest),
    task_id = IF(idempotency_keys.expires_at <= {now}, VALUES(task_id), idempotency_keys.task_id),
    expires_at = IF(idempotency_keys.expires_at <= {now}, VALUES(expires_at), idempotency_keys.expires_at)
