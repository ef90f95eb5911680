-- Tasks that differ in nothing but id, key, due time and parameters, as most batches do: what they share is bound once. The row
-- between the marks is repeated for each task of a chunk; its own parameters are numbered behind those that all share.
INSERT INTO tasks (parent_id, owner, tier, task_type, queue, priority, lane, created_at, updated_at, max_attempts,
    timeout_ms, deadline_at, expires_at, finish_step, retry_policy, memo, correlation_id, trace_context,
    id, task_key, due_at, parameters)
VALUES {row}(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?11, ?12, ?13, ?14, ?15, ?16, ?, ?, ?, ?){/row}
