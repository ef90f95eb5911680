DELETE FROM idempotency_keys WHERE rowid IN (
    SELECT rowid FROM idempotency_keys WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?2
) AND expires_at <= {now}
