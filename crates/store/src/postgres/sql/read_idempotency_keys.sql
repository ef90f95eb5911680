SELECT k.owner, k.idempotency_key, k.digest, k.task_id
FROM json_to_recordset($1::json) AS r(owner text, idempotency_key text)
JOIN idempotency_keys k ON k.owner = r.owner AND k.idempotency_key = r.idempotency_key
