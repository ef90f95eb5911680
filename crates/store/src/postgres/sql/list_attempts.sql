SELECT task_id, attempt, outcome, node_id, host, started_at, ended_at, error
FROM attempts
WHERE task_id = $1 AND attempt > $2
ORDER BY attempt
LIMIT $3
