DELETE FROM idempotency_keys WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?2
