SELECT CAST(id AS CHAR), span_start, queue, task_type, measure, label, bucket, n FROM count_deltas ORDER BY id LIMIT ?1 FOR UPDATE SKIP LOCKED
