SELECT span_start, queue, task_type, measure, label, bucket, n FROM task_counts WHERE span_start >= $1 AND span_start < $2
UNION ALL
SELECT span_start, queue, task_type, measure, label, bucket, n FROM count_deltas WHERE span_start >= $1 AND span_start < $2
