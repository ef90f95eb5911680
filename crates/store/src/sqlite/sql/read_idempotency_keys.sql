SELECT k.owner, k.idempotency_key, k.digest, k.task_id
FROM json_each(?1) AS r
JOIN idempotency_keys k ON k.owner = r.value ->> 'owner' AND k.idempotency_key = r.value ->> 'idempotency_key'
