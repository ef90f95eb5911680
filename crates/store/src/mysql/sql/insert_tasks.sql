-- The row between the marks is repeated for each task of a chunk.
INSERT INTO tasks (id, task_key, lane, created_at, updated_at, due_at, expires_at, parameters,
    {plain_columns})
VALUES {row}(?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?, COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?), ?, ?, {plain_values}){/row}
