-- What is kept for this host and has not been touched since, in the order of claims.
SELECT tasks.id
FROM host_affinity
STRAIGHT_JOIN tasks ON tasks.id = host_affinity.task_id AND tasks.due_at = host_affinity.due_at
WHERE host_affinity.host = ?1 AND tasks.lane IS NOT NULL
    AND JSON_CONTAINS(?2, JSON_QUOTE(CONVERT(tasks.queue USING utf8mb4)))
    AND JSON_CONTAINS(?3, JSON_QUOTE(CONVERT(tasks.task_type USING utf8mb4)))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = tasks.queue AND queues.paused_at IS NOT NULL)
ORDER BY tasks.priority DESC, tasks.due_at, tasks.id
LIMIT ?4
