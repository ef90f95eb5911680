-- For people: the same names and the same columns in every database.

CREATE VIEW v_tasks AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(parent_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS parent_task_id,
    CONVERT(owner USING utf8mb4) AS owner, tier, task_type, CONVERT(task_key USING utf8mb4) AS task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL created_at MICROSECOND AS created_at, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL updated_at MICROSECOND AS updated_at, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL due_at MICROSECOND AS due_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL started_at MICROSECOND AS started_at, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL last_attempt_at MICROSECOND AS last_attempt_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL finished_at MICROSECOND AS finished_at, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL deadline_at MICROSECOND AS deadline_at, timeout_ms,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(node_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS node_id, host,
    children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;

CREATE VIEW v_attempts AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id, attempt, outcome,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(node_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS node_id, host, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL started_at MICROSECOND AS started_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL ended_at MICROSECOND AS ended_at, error
FROM attempts
UNION ALL
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(t.id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')), t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(t.node_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')), t.host, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL t.last_attempt_at MICROSECOND, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL t.finished_at MICROSECOND, t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);

CREATE VIEW v_dead_letters AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    CONVERT(owner USING utf8mb4) AS owner, task_type, CONVERT(task_key USING utf8mb4) AS task_key, queue, status, attempt, retry_count, crash_count,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL finished_at MICROSECOND AS finished_at, error, parameters
FROM tasks
WHERE status IN ('FAILED', 'DEAD_LETTER');

CREATE VIEW v_counts AS
SELECT queue, task_type, label AS status, sum(n) AS tasks
FROM (
    SELECT queue, task_type, label, n FROM tallies WHERE measure = 'status' AND span_start = 0
    UNION ALL
    SELECT queue, task_type, label, n FROM tally_deltas WHERE measure = 'status' AND span_start = 0
) AS entries
GROUP BY queue, task_type, label
HAVING sum(n) <> 0;

CREATE VIEW v_statistics AS
SELECT TIMESTAMP '1970-01-01 00:00:00' + INTERVAL span_start MICROSECOND AS hour, queue, task_type, label AS status, measure, bucket,
    CASE WHEN measure IN ('wait', 'run') THEN round(power(2, (bucket + 0.5) / 4.0) / 1000.0, 3) END AS milliseconds,
    sum(n) AS tasks
FROM (
    SELECT span_start, queue, task_type, measure, label, bucket, n FROM tallies WHERE span_start > 0
    UNION ALL
    SELECT span_start, queue, task_type, measure, label, bucket, n FROM tally_deltas WHERE span_start > 0
) AS entries
GROUP BY span_start, queue, task_type, measure, label, bucket
HAVING sum(n) <> 0;
