-- Decided changes, each guarded by the very row that it was decided on.
UPDATE tasks INDEXED BY sqlite_autoindex_tasks_1 SET
    queue = c.queue, priority = c.priority, status = c.status, phase = c.phase, lane = c.lane,
    max_attempts = c.max_attempts, retry_count = c.retry_count, snooze_count = c.snooze_count,
    crash_count = c.crash_count, version = c.version, updated_at = c.updated_at, due_at = c.due_at,
    finished_at = c.finished_at, deadline_at = c.deadline_at, expires_at = c.expires_at,
    lease_token = c.lease_token, children_total = c.children_total,
    children_completed = c.children_completed, children_with_errors = c.children_with_errors,
    children_failed = c.children_failed, children_cancelled = c.children_cancelled, progress = c.progress,
    result = c.result, result_url = c.result_url, error = c.error
FROM (
    SELECT
        unhex(value ->> 'id') AS id, value ->> 'old_version' AS old_version,
        value ->> 'old_status' AS old_status, value ->> 'old_attempt' AS old_attempt,
        value ->> 'queue' AS queue, value ->> 'priority' AS priority, value ->> 'status' AS status,
        value ->> 'phase' AS phase, value ->> 'lane' AS lane, value ->> 'max_attempts' AS max_attempts,
        value ->> 'retry_count' AS retry_count, value ->> 'snooze_count' AS snooze_count,
        value ->> 'crash_count' AS crash_count, value ->> 'version' AS version,
        value ->> 'updated_at' AS updated_at, value ->> 'due_at' AS due_at,
        value ->> 'finished_at' AS finished_at, value ->> 'deadline_at' AS deadline_at,
        value ->> 'expires_at' AS expires_at, unhex(value ->> 'lease_token') AS lease_token,
        value ->> 'children_total' AS children_total, value ->> 'children_completed' AS children_completed,
        value ->> 'children_with_errors' AS children_with_errors,
        value ->> 'children_failed' AS children_failed, value ->> 'children_cancelled' AS children_cancelled,
        value ->> 'progress' AS progress, value ->> 'result' AS result, value ->> 'result_url' AS result_url,
        value ->> 'error' AS error
    FROM json_each(?1)
) AS c
-- Attempt and version as `record.rs` reads them.
WHERE tasks.id = c.id AND tasks.status = c.old_status
    AND iif(typeof(tasks.version) = 'integer' AND tasks.version BETWEEN 0 AND 1000000000000000, tasks.version, 0) = c.old_version
    AND iif(typeof(tasks.attempt) = 'integer' AND tasks.attempt BETWEEN 0 AND 1000000000, tasks.attempt, 0) = c.old_attempt
