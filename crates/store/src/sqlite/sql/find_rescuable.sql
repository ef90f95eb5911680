-- Without a token nobody runs it, whatever somebody wrote.
SELECT tasks.id, tasks.node_id
FROM tasks INDEXED BY tasks_status_type
LEFT JOIN nodes ON nodes.id = tasks.node_id
WHERE tasks.status = 'RUNNING' AND tasks.status <> 'COMPLETED' AND (nodes.id IS NULL OR nodes.lost_at IS NOT NULL OR tasks.lease_token IS NULL)
ORDER BY tasks.id
LIMIT ?1
