SELECT id, attempt, level, message, logged_at FROM task_logs FORCE INDEX (task_logs_task)
WHERE task_id = ?1 AND id > ?2
ORDER BY id
LIMIT ?3
