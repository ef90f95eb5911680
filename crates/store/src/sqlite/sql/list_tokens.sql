SELECT id, prefix, owner, tier, scopes, name, created_at, expires_at, last_used_at, revoked_at
FROM tokens WHERE id > ?1
ORDER BY id
LIMIT ?2
