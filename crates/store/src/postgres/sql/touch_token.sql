UPDATE tokens SET last_used_at = {now}
WHERE id = $2 AND COALESCE(last_used_at, 0) <= {now} - $3
