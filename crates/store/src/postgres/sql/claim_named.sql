-- One statement: the named tasks that can be claimed now, locked, claimed and counted. IS TRUE keeps the planner from looking
-- the rows up in the index of claims instead of by their ids.
WITH picked AS MATERIALIZED (
    SELECT tasks.id, tasks.lane, tasks.status
    FROM unnest($2::uuid[]) AS wanted(id)
    JOIN tasks ON tasks.id = wanted.id
    WHERE (tasks.lane IS NOT NULL) IS TRUE AND (tasks.due_at <= {now}) IS TRUE AND tasks.task_type = ANY($3::text[])
        AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = tasks.queue AND queues.paused_at IS NOT NULL)
        AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = $4 AND nodes.lost_at IS NULL)
    FOR UPDATE OF tasks SKIP LOCKED
), counts AS (
    SELECT picked.lane, picked.status, count(DISTINCT picked.id) AS n FROM picked GROUP BY picked.lane, picked.status
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
JOIN lanes ON lanes.id = picked.lane
WHERE tasks.id = picked.id AND (tasks.lane IS NOT NULL) IS TRUE
RETURNING {task_columns_of_tasks}, picked.lane AS claimed_lane, lanes.priority AS lane_priority
