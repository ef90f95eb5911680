-- Without a token nobody runs it, whatever somebody wrote.
-- The running ones are few; materialised, so that the planner looks nowhere else for them.
WITH running AS MATERIALIZED (
    SELECT id, node_id, lease_token FROM tasks WHERE status = 'RUNNING' AND status <> 'COMPLETED'
)
SELECT running.id, running.node_id
FROM running
LEFT JOIN nodes ON nodes.id = running.node_id
WHERE nodes.id IS NULL OR nodes.lost_at IS NOT NULL OR running.lease_token IS NULL
ORDER BY running.id
LIMIT $1
