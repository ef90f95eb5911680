-- A key whose promise has run out is taken over; any other stays as it is.
INSERT INTO idempotency_keys (owner, idempotency_key, digest, task_id, expires_at)
SELECT owner, idempotency_key, digest, task_id, {now} + ttl_us
FROM json_to_recordset($2::json) AS r(owner text, idempotency_key text, digest text, task_id uuid, ttl_us bigint)
ORDER BY owner, idempotency_key
ON CONFLICT (owner, idempotency_key) DO UPDATE
SET digest = EXCLUDED.digest, task_id = EXCLUDED.task_id, expires_at = EXCLUDED.expires_at
WHERE idempotency_keys.expires_at <= {now}
