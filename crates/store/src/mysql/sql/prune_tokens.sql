DELETE FROM tokens WHERE LEAST(expires_at, COALESCE(revoked_at, expires_at)) <= {now} - ?2 LIMIT ?3
