id, parent_id, owner, tier, task_type, task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    created_at, updated_at, due_at, started_at, last_attempt_at, finished_at, deadline_at, timeout_ms,
    lease_token, node_id, host,
    children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    finish_step, retry_policy, parameters, checkpoint, progress, result, result_url, error,
    memo, correlation_id, trace_context, artifact_expires_at, artifact_state
