-- The lanes that hold a due task, with the due time of their first; none for a node that is not alive.
SELECT lanes.id, lanes.priority,
    (SELECT CAST(due_at AS integer) FROM tasks WHERE tasks.lane = lanes.id AND due_at <= {now} ORDER BY due_at LIMIT 1) AS head
FROM lanes
WHERE lanes.queue IN (SELECT value FROM json_each(?2))
    AND lanes.task_type IN (SELECT value FROM json_each(?3))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = lanes.queue AND queues.paused_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = ?4 AND nodes.lost_at IS NULL)
