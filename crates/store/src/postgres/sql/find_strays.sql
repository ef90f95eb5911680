-- The running ones are few; materialised, so that the planner looks nowhere else for them.
WITH running AS MATERIALIZED (
    SELECT id, attempt, lease_token, node_id, last_attempt_at
    FROM tasks WHERE status = 'RUNNING' AND status <> 'COMPLETED'
)
SELECT id, attempt, lease_token FROM running
WHERE node_id = $2 AND lease_token IS NOT NULL AND last_attempt_at <= {now} - $3
ORDER BY id
LIMIT $4
