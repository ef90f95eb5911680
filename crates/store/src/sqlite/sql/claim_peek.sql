SELECT id, CAST(due_at AS integer) FROM tasks
WHERE lane = ?2 AND due_at BETWEEN ?4 AND {now} ORDER BY due_at, id LIMIT ?3
