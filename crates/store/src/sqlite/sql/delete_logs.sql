DELETE FROM task_logs WHERE task_id IN (SELECT unhex(value) FROM json_each(?1))
