-- What is kept for this host and has not been touched since, in the order of claims.
SELECT tasks.id
FROM host_affinity
CROSS JOIN tasks INDEXED BY sqlite_autoindex_tasks_1
WHERE tasks.id = host_affinity.task_id AND tasks.due_at = host_affinity.due_at
    AND host_affinity.host = ?1 AND tasks.lane IS NOT NULL
    AND tasks.queue IN (SELECT value FROM json_each(?2))
    AND tasks.task_type IN (SELECT value FROM json_each(?3))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = tasks.queue AND queues.paused_at IS NOT NULL)
ORDER BY tasks.priority DESC, tasks.due_at, tasks.id
LIMIT ?4
