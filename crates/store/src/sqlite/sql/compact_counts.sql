INSERT INTO task_counts (span_start, queue, task_type, measure, label, bucket, n)
SELECT value ->> 'span_start', value ->> 'queue', value ->> 'task_type', value ->> 'measure', value ->> 'label',
    value ->> 'bucket', value ->> 'n'
FROM json_each(?1)
WHERE true
ON CONFLICT (span_start, queue, task_type, measure, label, bucket) DO UPDATE SET n = task_counts.n + excluded.n
