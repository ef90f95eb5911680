SELECT span_start, queue, task_type, measure, label, bucket, n FROM tallies WHERE span_start >= ?1 AND span_start < ?2
UNION ALL
SELECT span_start, queue, task_type, measure, label, bucket, n FROM tally_deltas WHERE span_start >= ?1 AND span_start < ?2
