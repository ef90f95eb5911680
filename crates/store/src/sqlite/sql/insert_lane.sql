INSERT INTO lanes (queue, task_type, priority) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING
