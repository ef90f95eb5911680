SELECT task_id, count(*) FROM task_logs INDEXED BY task_logs_task
WHERE task_id IN (SELECT unhex(value) FROM json_each(?1))
GROUP BY task_id
HAVING count(*) > ?2
