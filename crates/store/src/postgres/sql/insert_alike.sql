-- Tasks that differ in nothing but id, key, due time and parameters, what they add to the counts, and a hint, if any of them is to
-- hint: most batches are so, and twenty arrays cost more than the rows.
WITH made AS (
    INSERT INTO tasks (id, task_key, due_at, parameters, lane, created_at, updated_at, expires_at,
        {plain_columns})
    SELECT id, task_key, COALESCE(run_at, {now} + $8::bigint), parameters, $9::bigint, {now}, {now}, {parameter:deadline_at},
        {plain_values:10}
    FROM unnest($4::uuid[], $5::text[], $6::bigint[], $7::text[]) AS r(id, task_key, run_at, parameters)
), counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM json_to_recordset($2::json) AS t(span_start bigint, queue text, task_type text, measure text, label text,
        bucket integer, n bigint)
)
SELECT pg_notify('longhaul', '') WHERE $3::bigint <> 0
