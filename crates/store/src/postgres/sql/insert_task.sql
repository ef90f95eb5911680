-- One task, and what it adds to the counts. `insert_tasks` sets up arrays that a lone task has no use for.
WITH counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, $8, $6, 'status', 'QUEUED', 0, 1)
)
INSERT INTO tasks (id, parent_id, owner, tier, task_type, task_key, queue, priority, lane, created_at, updated_at,
    due_at, max_attempts, timeout_ms, deadline_at, expires_at, finish_step, retry_policy, parameters, memo,
    correlation_id, trace_context)
VALUES ($2, $3, $4, $5, $6, $7, $8, $9::bigint, $10::bigint, {now}, {now},
    COALESCE($11::bigint, {now} + $12::bigint), $13::bigint, $14, $15, $15, $16::bigint <> 0, $17, $18, $19, $20, $21)
