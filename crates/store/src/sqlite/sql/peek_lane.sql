SELECT id, CAST(due_at AS integer) FROM tasks
WHERE lane = ?2 AND due_at >= ?3 AND due_at <= {now} ORDER BY due_at, id LIMIT ?4
