-- One task, and what it adds to the counts. `insert_tasks` sets up arrays that a lone task has no use for.
WITH counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, {parameter:queue}, {parameter:task_type}, 'status', 'QUEUED', 0, 1)
)
INSERT INTO tasks (id, task_key, lane, created_at, updated_at, due_at, expires_at, parameters,
    {plain_columns})
VALUES ($2, $3, $4::bigint, {now}, {now}, COALESCE($5::bigint, {now} + $6::bigint), {parameter:deadline_at}, $7,
    {plain_values:8})
