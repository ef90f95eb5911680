-- Through a list of their ids: MySQL removes nothing from a table that the statement also reads.
DELETE task_logs
FROM (
    SELECT id FROM task_logs FORCE INDEX (task_logs_task) WHERE task_id = ?1 ORDER BY id LIMIT ?2
) AS oldest
STRAIGHT_JOIN task_logs ON task_logs.id = oldest.id
