-- The row between the marks is repeated for each line. JSON_TABLE would build a table of its own for each call.
INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
VALUES {row}(?, ?, ?, ?, ?, ?, ?){/row}
