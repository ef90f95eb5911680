-- The row between the marks is repeated for each task of a chunk.
INSERT INTO tasks (id, task_key, lane, created_at, updated_at, due_at, expires_at, parameters,
    {plain_columns})
VALUES {row}(?, ?, ?, ?, ?, ?, ?, ?, {plain_values}){/row}
