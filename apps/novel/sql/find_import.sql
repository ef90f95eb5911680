SELECT id, title, source, task_id FROM novels WHERE owner = ? AND import_key = ?
