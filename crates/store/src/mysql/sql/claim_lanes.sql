-- The lanes that hold a due task, with the due time of their first; none for a node that is not alive. The first is found
-- before it is asked whether it is due: the other way round, a lane without a due task would be read to its end.
SELECT id, priority, CASE WHEN head <= {now} THEN head END AS due_head
FROM (
    SELECT lanes.id, lanes.priority,
        (SELECT due_at FROM tasks WHERE tasks.lane = lanes.id ORDER BY due_at LIMIT 1) AS head
    FROM lanes
    WHERE JSON_CONTAINS(?2, JSON_QUOTE(CONVERT(lanes.queue USING utf8mb4)))
        AND JSON_CONTAINS(?3, JSON_QUOTE(CONVERT(lanes.task_type USING utf8mb4)))
        AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = lanes.queue AND queues.paused_at IS NOT NULL)
        AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = ?4 AND nodes.lost_at IS NULL)
) AS heads
