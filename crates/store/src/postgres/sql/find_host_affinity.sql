-- What is kept for this host and has not been touched since, in the order of claims.
SELECT tasks.id
FROM host_affinity
JOIN tasks ON tasks.id = host_affinity.task_id AND tasks.due_at = host_affinity.due_at
WHERE host_affinity.host = $1 AND (tasks.lane IS NOT NULL) IS TRUE
    AND tasks.queue IN (SELECT json_array_elements_text($2::json))
    AND tasks.task_type IN (SELECT json_array_elements_text($3::json))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = tasks.queue AND queues.paused_at IS NOT NULL)
ORDER BY tasks.priority DESC, tasks.due_at, tasks.id
LIMIT $4
