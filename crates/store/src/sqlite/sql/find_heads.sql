-- For each lane of the queue, or of all, that holds a due task: when the first of them became due.
SELECT id, queue, priority, head, paused_at, task_type FROM (
    SELECT lanes.id, lanes.queue, lanes.priority, lanes.task_type,
        (SELECT CAST(due_at AS integer) FROM tasks WHERE tasks.lane = lanes.id AND due_at <= {now} ORDER BY due_at LIMIT 1) AS head,
        queues.paused_at
    FROM lanes
    LEFT JOIN queues ON queues.name = lanes.queue
    WHERE ?2 IS NULL OR lanes.queue = ?2
)
WHERE head IS NOT NULL
