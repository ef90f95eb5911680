-- Tasks that differ in nothing but id, key, due time and parameters, as most batches do: what they share is bound once. The row
-- between the marks is repeated for each task of a chunk; its own parameters are numbered behind those that all share.
INSERT INTO tasks (created_at, updated_at, lane, expires_at, {plain_columns},
    id, task_key, due_at, parameters)
VALUES {row}(?1, ?1, ?2, {parameter:deadline_at}, {plain_values:3}, ?, ?, ?, ?){/row}
