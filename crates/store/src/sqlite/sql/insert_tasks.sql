-- The row between the marks is repeated for each task of a chunk.
INSERT INTO tasks (id, parent_id, owner, tier, task_type, task_key, queue, priority, lane, created_at, updated_at,
    due_at, max_attempts, timeout_ms, deadline_at, expires_at, finish_step, retry_policy, parameters, memo,
    correlation_id, trace_context)
VALUES {row}(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?){/row}
