INSERT INTO task_counts (span_start, queue, task_type, measure, label, bucket, n)
SELECT span_start, queue, task_type, measure, label, bucket, n
FROM json_to_recordset($1::json) AS r(span_start bigint, queue text, task_type text, measure text, label text,
    bucket integer, n bigint)
ON CONFLICT (span_start, queue, task_type, measure, label, bucket) DO UPDATE SET n = task_counts.n + EXCLUDED.n
