-- One statement: where the head of the order lies, the rows locked there, the claim, and its task_counts. IS TRUE keeps the
-- planner from looking the rows up in the index of claims instead of by their ids.
WITH open_lanes AS MATERIALIZED (
    SELECT lanes.id, lanes.priority, COALESCE(bounds.due_at, 0) AS from_due
    FROM lanes
    LEFT JOIN unnest($7::bigint[], $8::bigint[]) AS bounds(lane, due_at) ON bounds.lane = lanes.id
    WHERE lanes.queue = ANY($2::text[]) AND lanes.task_type = ANY($3::text[])
        AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = lanes.queue AND queues.paused_at IS NOT NULL)
        AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = $4 AND nodes.lost_at IS NULL)
), several AS MATERIALIZED (
    SELECT count(*) > 1 AS lanes FROM open_lanes
), shares AS MATERIALIZED (
    -- How many of the first tasks in the whole order each lane holds; a lane alone holds them all.
    SELECT head.lane, head.priority, head.from_due, count(*) AS wanted
    FROM (
        SELECT open_lanes.id AS lane, open_lanes.priority, open_lanes.from_due
        FROM open_lanes
        CROSS JOIN LATERAL (
            SELECT tasks.due_at, tasks.id FROM tasks
            WHERE tasks.lane = open_lanes.id AND tasks.due_at >= open_lanes.from_due AND tasks.due_at <= {now}
            ORDER BY tasks.due_at, tasks.id LIMIT $6
        ) AS first
        WHERE (SELECT several.lanes FROM several)
        ORDER BY open_lanes.priority DESC, first.due_at, first.id
        LIMIT $6
    ) AS head
    GROUP BY head.lane, head.priority, head.from_due
    UNION ALL
    SELECT open_lanes.id, open_lanes.priority, open_lanes.from_due, $6 FROM open_lanes WHERE NOT (SELECT several.lanes FROM several)
), picked AS MATERIALIZED (
    SELECT locked.id, locked.lane, locked.status, shares.priority AS lane_priority
    FROM shares
    CROSS JOIN LATERAL (
        SELECT tasks.id, tasks.lane, tasks.status FROM tasks
        WHERE tasks.lane = shares.lane AND tasks.due_at >= shares.from_due AND tasks.due_at <= {now}
        ORDER BY tasks.due_at, tasks.id LIMIT shares.wanted
        FOR UPDATE SKIP LOCKED
    ) AS locked
), counts AS (
    SELECT picked.lane, picked.status, count(*) AS n FROM picked GROUP BY picked.lane, picked.status
), counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    SELECT 0, lanes.queue, lanes.task_type, 'status', moved.label, 0, moved.n
    FROM (
        SELECT lane, status AS label, -n AS n FROM counts
        UNION ALL
        SELECT lane, 'RUNNING', n FROM counts
    ) AS moved
    JOIN lanes ON lanes.id = moved.lane
)
UPDATE tasks SET
{taken}
FROM picked
WHERE tasks.id = picked.id AND (tasks.lane IS NOT NULL) IS TRUE
RETURNING {task_columns_of_tasks}, picked.lane AS claimed_lane, picked.lane_priority
