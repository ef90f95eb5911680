DELETE FROM task_logs
WHERE task_id = $1
    AND id <= (SELECT id FROM task_logs WHERE task_id = $1 ORDER BY id LIMIT 1 OFFSET $2 - 1)
