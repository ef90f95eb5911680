-- What `claim_named` does, for one task: nothing to group, to sort or to set up for many. Its lane is not looked at, and what the
-- caller can make, the token $6, is not made here: cold, each such thing is a hundredth of the time from submit to start.
WITH picked AS MATERIALIZED (
    SELECT tasks.id, tasks.lane, tasks.status, tasks.queue, tasks.task_type
    FROM tasks
    WHERE tasks.id = $2 AND (tasks.lane IS NOT NULL) IS TRUE AND (tasks.due_at <= {now}) IS TRUE AND tasks.task_type = ANY($3::text[])
        AND (SELECT queues.paused_at FROM queues WHERE queues.name = tasks.queue) IS NULL
        AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = $4 AND nodes.lost_at IS NULL)
    FOR UPDATE OF tasks SKIP LOCKED
), counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    SELECT 0, picked.queue, picked.task_type, 'status', moved.label, 0, moved.n
    FROM picked
    CROSS JOIN LATERAL (VALUES (picked.status, -1), ('RUNNING', 1)) AS moved(label, n)
)
UPDATE tasks SET
{taken}
FROM picked
WHERE tasks.id = picked.id AND (tasks.lane IS NOT NULL) IS TRUE
RETURNING {task_columns_of_tasks}, picked.lane AS claimed_lane, NULL::bigint AS lane_priority
