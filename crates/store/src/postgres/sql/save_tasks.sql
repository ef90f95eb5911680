-- Decided changes, each guarded by the very row that it was decided on.
UPDATE tasks SET
    queue = c.queue, priority = c.priority, status = c.status, phase = c.phase, lane = c.lane,
    max_attempts = c.max_attempts, retry_count = c.retry_count, snooze_count = c.snooze_count,
    crash_count = c.crash_count, version = c.version, updated_at = c.updated_at, due_at = c.due_at,
    finished_at = c.finished_at, deadline_at = c.deadline_at, expires_at = c.expires_at,
    lease_token = c.lease_token, children_total = c.children_total,
    children_completed = c.children_completed, children_with_errors = c.children_with_errors,
    children_failed = c.children_failed, children_cancelled = c.children_cancelled, progress = c.progress,
    result = c.result, result_url = c.result_url, error = c.error
FROM json_to_recordset($1::json) AS c(
    id uuid, old_version bigint, old_status text, old_attempt integer, queue text, priority integer,
    status text, phase text, lane integer, max_attempts integer, retry_count integer, snooze_count integer,
    crash_count integer, version bigint, updated_at bigint, due_at bigint, finished_at bigint,
    deadline_at bigint, expires_at bigint, lease_token uuid, children_total integer,
    children_completed integer, children_with_errors integer, children_failed integer,
    children_cancelled integer, progress text, result text, result_url text, error text
)
-- Attempt and version as `record.rs` reads them.
WHERE tasks.id = c.id AND (tasks.status = c.old_status) IS TRUE
    AND CASE WHEN tasks.version BETWEEN 0 AND 1000000000000000 THEN tasks.version ELSE 0 END = c.old_version
    AND CASE WHEN tasks.attempt BETWEEN 0 AND 1000000000 THEN tasks.attempt ELSE 0 END = c.old_attempt
