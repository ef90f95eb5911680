SELECT id, prefix, owner, tier, scopes, name, created_at, expires_at, last_used_at, revoked_at,
    digest, {now}
FROM tokens WHERE id = ?2
