-- A repeat, after an outcome that was unknown, changes nothing.
INSERT INTO tokens (id, digest, prefix, owner, tier, scopes, name, created_at, expires_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, {now}, {now} + ?9)
ON CONFLICT DO NOTHING
