SELECT COUNT(*) FROM artifacts WHERE task_id = $1
