SELECT tasks.id, tasks.node_id
FROM tasks
LEFT JOIN nodes ON nodes.id = tasks.node_id
WHERE tasks.status = 'RUNNING' AND (nodes.id IS NULL OR nodes.lost_at IS NOT NULL)
ORDER BY tasks.id
LIMIT ?1
