DELETE FROM kept_tasks WHERE task_id IN (SELECT unhex(value) FROM json_each(?1))
