SELECT id, task_id FROM novels WHERE owner = ? AND import_key = ?
