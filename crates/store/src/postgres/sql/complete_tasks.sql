-- The state is checked on the row that the id finds; IS TRUE keeps the planner from looking it up in an index.
-- Ends what has neither parent nor children to think of, and counts it; the rest takes the longer way.
WITH done AS (
    UPDATE tasks SET status = 'COMPLETED', result = r.result, result_url = r.result_url, error = NULL,
        expires_at = NULL, finished_at = greatest({now}, tasks.updated_at), updated_at = greatest({now}, tasks.updated_at),
        version = version + 1
    FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[]) AS r(id, attempt, token, result, result_url)
    WHERE tasks.id = r.id AND (tasks.status = 'RUNNING') IS TRUE AND tasks.attempt = r.attempt AND tasks.lease_token = r.token
        AND tasks.parent_id IS NULL AND tasks.children_total = 0 AND NOT tasks.finish_step
    RETURNING tasks.id, queue, task_type, least(tasks.attempt, 3) AS attempts,
        finished_at - finished_at % 3600000000 AS span_start,
        floor(4 * ln(greatest(last_attempt_at - greatest(due_at, created_at), 1)::float8) / ln(2::float8))::integer AS wait,
        floor(4 * ln(greatest(finished_at - last_attempt_at, 1)::float8) / ln(2::float8))::integer AS run
), alike AS (
    -- Of many tasks that end together most are alike: the counts are made of these few rows.
    SELECT queue, task_type, attempts, span_start, wait, run, count(*) AS n
    FROM done GROUP BY queue, task_type, attempts, span_start, wait, run
), counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    SELECT 0, queue, task_type, 'status', 'RUNNING', 0, -sum(n)::bigint FROM alike GROUP BY queue, task_type
    UNION ALL
    SELECT 0, queue, task_type, 'status', 'COMPLETED', 0, sum(n)::bigint FROM alike GROUP BY queue, task_type
    UNION ALL
    SELECT span_start, queue, task_type, 'ended', 'COMPLETED', attempts, sum(n)::bigint
    FROM alike GROUP BY span_start, queue, task_type, attempts
    UNION ALL
    SELECT span_start, queue, task_type, 'wait', 'COMPLETED', wait, sum(n)::bigint
    FROM alike GROUP BY span_start, queue, task_type, wait
    UNION ALL
    SELECT span_start, queue, task_type, 'run', 'COMPLETED', run, sum(n)::bigint
    FROM alike GROUP BY span_start, queue, task_type, run
)
SELECT id FROM done
