INSERT INTO lanes (queue, task_type, priority) VALUES (?1, ?2, ?3) ON DUPLICATE KEY UPDATE id = lanes.id
