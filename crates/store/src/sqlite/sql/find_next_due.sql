SELECT min((SELECT CAST(due_at AS integer) FROM tasks WHERE tasks.lane = lanes.id ORDER BY due_at LIMIT 1))
FROM lanes
WHERE lanes.queue IN (SELECT value FROM json_each(?1))
    AND lanes.task_type IN (SELECT value FROM json_each(?2))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = lanes.queue AND queues.paused_at IS NOT NULL)
