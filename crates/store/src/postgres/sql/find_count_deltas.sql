-- By its place: a line that is locked stays where it is.
SELECT ctid::text, span_start, queue, task_type, measure, label, bucket, n FROM count_deltas LIMIT $1 FOR UPDATE SKIP LOCKED
