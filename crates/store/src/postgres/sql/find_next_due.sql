SELECT min(head.due_at)
FROM lanes
CROSS JOIN LATERAL (SELECT due_at FROM tasks WHERE tasks.lane = lanes.id ORDER BY due_at LIMIT 1) AS head
WHERE lanes.queue IN (SELECT json_array_elements_text($1::json))
    AND lanes.task_type IN (SELECT json_array_elements_text($2::json))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = lanes.queue AND queues.paused_at IS NOT NULL)
