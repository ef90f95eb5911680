-- The running ones are few; materialised, so that the planner looks nowhere else for them.
WITH running AS MATERIALIZED (
    SELECT id, updated_at, last_attempt_at, timeout_ms FROM tasks WHERE status = 'RUNNING' AND status <> 'COMPLETED'
)
SELECT id FROM running
WHERE updated_at <= {now} - $2 OR last_attempt_at + timeout_ms * 1000 <= {now} - $3
ORDER BY id
LIMIT $4
