DELETE FROM tokens WHERE id IN (
    SELECT id FROM tokens WHERE min(expires_at, COALESCE(revoked_at, expires_at)) <= {now} - ?2 LIMIT ?3
)
