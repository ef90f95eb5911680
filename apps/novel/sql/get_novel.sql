SELECT id, title, task_id FROM novels WHERE id = ? AND owner = ?
