-- A key whose promise has run out is taken over; any other stays as it is.
INSERT INTO idempotency_keys (owner, idempotency_key, digest, task_id, expires_at)
SELECT value ->> 'owner', value ->> 'idempotency_key', value ->> 'digest', unhex(value ->> 'task_id'),
    {now} + (value ->> 'ttl_us')
FROM json_each(?2)
WHERE true
ON CONFLICT (owner, idempotency_key) DO UPDATE
SET digest = excluded.digest, task_id = excluded.task_id, expires_at = excluded.expires_at
WHERE idempotency_keys.expires_at <= {now}
