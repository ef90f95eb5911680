-- For each lane of the queue, or of all, that holds a due task: when the first of them became due.
SELECT lanes.id, lanes.queue, lanes.priority, head.due_at, queues.paused_at, lanes.task_type
FROM lanes
LEFT JOIN queues ON queues.name = lanes.queue
LEFT JOIN json_to_recordset($3::json) AS bounds(lane integer, due_at bigint) ON bounds.lane = lanes.id
CROSS JOIN LATERAL (
    SELECT tasks.due_at FROM tasks
    WHERE tasks.lane = lanes.id AND tasks.due_at >= COALESCE(bounds.due_at, 0) AND tasks.due_at <= {now}
    ORDER BY tasks.due_at LIMIT 1
) AS head
WHERE $2::text IS NULL OR lanes.queue = $2
