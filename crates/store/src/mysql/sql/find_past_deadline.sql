SELECT id FROM tasks WHERE expires_at <= {now} ORDER BY expires_at, id LIMIT ?2
