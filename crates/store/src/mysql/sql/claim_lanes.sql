-- The lanes that may be claimed from, and the time; none for a node that is not alive.
SELECT lanes.id, lanes.priority, {now}
FROM lanes
WHERE JSON_CONTAINS(?2, JSON_QUOTE(CONVERT(lanes.queue USING utf8mb4)))
    AND JSON_CONTAINS(?3, JSON_QUOTE(CONVERT(lanes.task_type USING utf8mb4)))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = lanes.queue AND queues.paused_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = ?4 AND nodes.lost_at IS NULL)
