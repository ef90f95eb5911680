SELECT json_array(hex(id), due_at, status, rowid) AS packed FROM tasks
WHERE lane = ?2 AND due_at <= {now} ORDER BY due_at, id LIMIT ?3
