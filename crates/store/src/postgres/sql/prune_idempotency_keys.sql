DELETE FROM idempotency_keys WHERE (owner, idempotency_key) IN (
    SELECT owner, idempotency_key FROM idempotency_keys
    WHERE expires_at <= {now} ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
) AND expires_at <= {now}
