-- Which of the named tasks can be claimed now, and the priority of the lane that each stands in.
SELECT tasks.id, lanes.priority
FROM JSON_TABLE(?2, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(wanted.task_id)
STRAIGHT_JOIN lanes ON lanes.id = tasks.lane
WHERE tasks.due_at <= {now}
    AND JSON_CONTAINS(?3, JSON_QUOTE(CONVERT(tasks.task_type USING utf8mb4)))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = tasks.queue AND queues.paused_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = ?4 AND nodes.lost_at IS NULL)
