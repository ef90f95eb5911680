-- The tasks, what they add to the counts, and a hint, if any of them is to hint, in one round trip.
WITH made AS (
    INSERT INTO tasks (id, task_key, lane, created_at, updated_at, due_at, expires_at, parameters,
        {plain_columns})
    SELECT id, task_key, lane, {now}, {now}, COALESCE(run_at, {now} + delay_us), deadline_at, parameters,
        {plain_columns}
    FROM unnest($4::uuid[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
        {plain_arrays:10})
        AS r(id, task_key, lane, run_at, delay_us, parameters,
            {plain_columns})
), counted AS (
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM json_to_recordset($2::json) AS t(span_start bigint, queue text, task_type text, measure text, label text,
        bucket integer, n bigint)
)
SELECT pg_notify('longhaul', '') WHERE $3::bigint <> 0
