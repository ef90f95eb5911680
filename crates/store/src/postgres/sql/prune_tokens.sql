DELETE FROM tokens WHERE id IN (
    SELECT id FROM tokens WHERE LEAST(expires_at, revoked_at) <= {now} - $2 LIMIT $3 FOR UPDATE SKIP LOCKED
)
