SELECT CAST(id AS TEXT), span_start, queue, task_type, measure, label, bucket, n FROM count_deltas ORDER BY id LIMIT ?1
