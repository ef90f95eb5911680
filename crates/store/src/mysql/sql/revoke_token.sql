UPDATE tokens SET revoked_at = COALESCE(revoked_at, {now}) WHERE id = ?2
