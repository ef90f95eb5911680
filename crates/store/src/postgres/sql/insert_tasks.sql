-- The tasks, what they add to the counts, and a hint, if any of them is to hint, in one round trip.
WITH made AS (
    INSERT INTO tasks (id, parent_id, owner, tier, task_type, task_key, queue, priority, lane, created_at, updated_at,
        due_at, max_attempts, timeout_ms, deadline_at, expires_at, finish_step, retry_policy, parameters, memo,
        correlation_id, trace_context)
    SELECT id, parent_id, owner, tier, task_type, task_key, queue, priority, lane, {now}, {now},
        COALESCE(run_at, {now} + delay_us), max_attempts, timeout_ms, deadline_at, deadline_at, finish_step,
        retry_policy, parameters, memo, correlation_id, trace_context
    FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[],
        $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bool[],
        $18::text[], $19::text[], $20::text[], $21::text[], $22::text[])
        AS r(id, parent_id, owner, tier, task_type, task_key, queue, priority, lane, run_at, delay_us, max_attempts,
            timeout_ms, deadline_at, finish_step, retry_policy, parameters, memo, correlation_id, trace_context)
), counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM json_to_recordset($2::json) AS t(span_start bigint, queue text, task_type text, measure text, label text,
        bucket integer, n bigint)
)
SELECT pg_notify('longhaul', '') WHERE $23::bigint <> 0
