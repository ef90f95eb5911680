-- Decided changes, each guarded by the very row that it was decided on.
UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (
    id CHAR(32) PATH '$.id', old_version BIGINT PATH '$.old_version',
    old_status VARCHAR(40) CHARACTER SET utf8mb4 PATH '$.old_status', old_attempt INT PATH '$.old_attempt',
    queue VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.queue', priority INT PATH '$.priority', status VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.status',
    phase VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.phase', lane INT PATH '$.lane', max_attempts INT PATH '$.max_attempts',
    retry_count INT PATH '$.retry_count', snooze_count INT PATH '$.snooze_count',
    crash_count INT PATH '$.crash_count', version BIGINT PATH '$.version',
    updated_at BIGINT PATH '$.updated_at', due_at BIGINT PATH '$.due_at',
    finished_at BIGINT PATH '$.finished_at', deadline_at BIGINT PATH '$.deadline_at',
    expires_at BIGINT PATH '$.expires_at', lease_token CHAR(32) PATH '$.lease_token',
    children_total INT PATH '$.children_total', children_completed INT PATH '$.children_completed',
    children_with_errors INT PATH '$.children_with_errors', children_failed INT PATH '$.children_failed',
    children_cancelled INT PATH '$.children_cancelled', progress LONGTEXT CHARACTER SET utf8mb4 PATH '$.progress',
    result LONGTEXT CHARACTER SET utf8mb4 PATH '$.result', result_url LONGTEXT CHARACTER SET utf8mb4 PATH '$.result_url', error LONGTEXT CHARACTER SET utf8mb4 PATH '$.error'
)) AS c
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(c.id)
SET
    tasks.queue = c.queue, tasks.priority = c.priority, tasks.status = c.status, tasks.phase = c.phase,
    tasks.lane = c.lane, tasks.max_attempts = c.max_attempts, tasks.retry_count = c.retry_count,
    tasks.snooze_count = c.snooze_count, tasks.crash_count = c.crash_count, tasks.version = c.version,
    tasks.updated_at = c.updated_at, tasks.due_at = c.due_at, tasks.finished_at = c.finished_at,
    tasks.deadline_at = c.deadline_at, tasks.expires_at = c.expires_at,
    tasks.lease_token = UNHEX(c.lease_token), tasks.children_total = c.children_total,
    tasks.children_completed = c.children_completed, tasks.children_with_errors = c.children_with_errors,
    tasks.children_failed = c.children_failed, tasks.children_cancelled = c.children_cancelled,
    tasks.progress = c.progress, tasks.result = c.result, tasks.result_url = c.result_url,
    tasks.error = c.error, tasks.reserve = IF(c.finished_at IS NULL, tasks.reserve, NULL)
-- Attempt and version as `record.rs` reads them.
WHERE tasks.status = c.old_status AND IF(tasks.version BETWEEN 0 AND 1000000000000000, tasks.version, 0) = c.old_version
    AND IF(tasks.attempt BETWEEN 0 AND 1000000000, tasks.attempt, 0) = c.old_attempt
