INSERT INTO novels (id, owner, title, source, task_id, import_key) VALUES (?, ?, ?, ?, ?, ?)
