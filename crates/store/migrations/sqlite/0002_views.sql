-- For people: the same names and the same columns in every database.

CREATE VIEW v_tasks AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS task_id,
    lower(substr(hex(parent_id), 1, 8) || '-' || substr(hex(parent_id), 9, 4) || '-' || substr(hex(parent_id), 13, 4) || '-' || substr(hex(parent_id), 17, 4) || '-' || substr(hex(parent_id), 21)) AS parent_task_id,
    owner, tier, task_type, task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at, strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) AS updated_at, strftime('%Y-%m-%dT%H:%M:%S', due_at / 1000000, 'unixepoch') || printf('.%06dZ', due_at % 1000000) AS due_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at, strftime('%Y-%m-%dT%H:%M:%S', last_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', last_attempt_at % 1000000) AS last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at, strftime('%Y-%m-%dT%H:%M:%S', deadline_at / 1000000, 'unixepoch') || printf('.%06dZ', deadline_at % 1000000) AS deadline_at, timeout_ms,
    lower(substr(hex(node_id), 1, 8) || '-' || substr(hex(node_id), 9, 4) || '-' || substr(hex(node_id), 13, 4) || '-' || substr(hex(node_id), 17, 4) || '-' || substr(hex(node_id), 21)) AS node_id, host,
    children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;

CREATE VIEW v_attempts AS
SELECT lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id, attempt, outcome,
    lower(substr(hex(node_id), 1, 8) || '-' || substr(hex(node_id), 9, 4) || '-' || substr(hex(node_id), 13, 4) || '-' || substr(hex(node_id), 17, 4) || '-' || substr(hex(node_id), 21)) AS node_id, host, strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', ended_at / 1000000, 'unixepoch') || printf('.%06dZ', ended_at % 1000000) AS ended_at, error
FROM attempts
UNION ALL
SELECT lower(substr(hex(t.id), 1, 8) || '-' || substr(hex(t.id), 9, 4) || '-' || substr(hex(t.id), 13, 4) || '-' || substr(hex(t.id), 17, 4) || '-' || substr(hex(t.id), 21)), t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    lower(substr(hex(t.node_id), 1, 8) || '-' || substr(hex(t.node_id), 9, 4) || '-' || substr(hex(t.node_id), 13, 4) || '-' || substr(hex(t.node_id), 17, 4) || '-' || substr(hex(t.node_id), 21)), t.host, strftime('%Y-%m-%dT%H:%M:%S', t.last_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', t.last_attempt_at % 1000000), strftime('%Y-%m-%dT%H:%M:%S', t.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', t.finished_at % 1000000), t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);

CREATE VIEW v_dead_letters AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS task_id,
    owner, task_type, task_key, queue, status, attempt, retry_count, crash_count,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at, error, parameters
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
SELECT strftime('%Y-%m-%dT%H:%M:%S', span_start / 1000000, 'unixepoch') || printf('.%06dZ', span_start % 1000000) AS hour, queue, task_type, label AS status, measure, bucket,
    CASE WHEN measure IN ('wait', 'run') THEN round((1 << (bucket / 4))
        * CASE bucket % 4 WHEN 0 THEN 1.0905 WHEN 1 THEN 1.2968 WHEN 2 THEN 1.5422 ELSE 1.8340 END / 1000.0, 3)
    END AS milliseconds,
    sum(n) AS tasks
FROM (
    SELECT span_start, queue, task_type, measure, label, bucket, n FROM tallies WHERE span_start > 0
    UNION ALL
    SELECT span_start, queue, task_type, measure, label, bucket, n FROM tally_deltas WHERE span_start > 0
) AS entries
GROUP BY span_start, queue, task_type, measure, label, bucket
HAVING sum(n) <> 0;
