INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
SELECT span_start, queue, task_type, measure, label, bucket, n
FROM json_to_recordset($1::json) AS r(span_start bigint, queue text, task_type text, measure text, label text,
    bucket integer, n bigint)
