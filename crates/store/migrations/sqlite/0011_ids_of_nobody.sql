-- hex() makes an empty text of NULL, so ids that are not there were shown as dashes.
DROP VIEW v_tasks;
CREATE VIEW v_tasks AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS task_id,
    NULLIF(lower(substr(hex(parent_id), 1, 8) || '-' || substr(hex(parent_id), 9, 4) || '-' || substr(hex(parent_id), 13, 4) || '-' || substr(hex(parent_id), 17, 4) || '-' || substr(hex(parent_id), 21)), '----') AS parent_task_id,
    owner, tier, task_type, task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at, strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) AS updated_at, strftime('%Y-%m-%dT%H:%M:%S', due_at / 1000000, 'unixepoch') || printf('.%06dZ', due_at % 1000000) AS due_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at, strftime('%Y-%m-%dT%H:%M:%S', last_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', last_attempt_at % 1000000) AS last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at, strftime('%Y-%m-%dT%H:%M:%S', deadline_at / 1000000, 'unixepoch') || printf('.%06dZ', deadline_at % 1000000) AS deadline_at, timeout_ms,
    NULLIF(lower(substr(hex(node_id), 1, 8) || '-' || substr(hex(node_id), 9, 4) || '-' || substr(hex(node_id), 13, 4) || '-' || substr(hex(node_id), 17, 4) || '-' || substr(hex(node_id), 21)), '----') AS node_id, host,
    children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;

DROP VIEW v_attempts;
CREATE VIEW v_attempts AS
SELECT lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id, attempt, outcome,
    NULLIF(lower(substr(hex(node_id), 1, 8) || '-' || substr(hex(node_id), 9, 4) || '-' || substr(hex(node_id), 13, 4) || '-' || substr(hex(node_id), 17, 4) || '-' || substr(hex(node_id), 21)), '----') AS node_id, host, strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', ended_at / 1000000, 'unixepoch') || printf('.%06dZ', ended_at % 1000000) AS ended_at, error
FROM attempts
UNION ALL
SELECT lower(substr(hex(t.id), 1, 8) || '-' || substr(hex(t.id), 9, 4) || '-' || substr(hex(t.id), 13, 4) || '-' || substr(hex(t.id), 17, 4) || '-' || substr(hex(t.id), 21)), t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    NULLIF(lower(substr(hex(t.node_id), 1, 8) || '-' || substr(hex(t.node_id), 9, 4) || '-' || substr(hex(t.node_id), 13, 4) || '-' || substr(hex(t.node_id), 17, 4) || '-' || substr(hex(t.node_id), 21)), '----'), t.host, strftime('%Y-%m-%dT%H:%M:%S', t.last_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', t.last_attempt_at % 1000000), strftime('%Y-%m-%dT%H:%M:%S', t.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', t.finished_at % 1000000), t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);
