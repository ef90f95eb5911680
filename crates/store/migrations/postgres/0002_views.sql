-- For people: the same names and the same columns in every database.

CREATE FUNCTION longhaul_time(micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN timestamptz 'epoch' + micros * interval '1 microsecond';

CREATE VIEW v_tasks AS
SELECT id AS task_id, parent_id AS parent_task_id, owner, tier, task_type, task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    longhaul_time(created_at) AS created_at, longhaul_time(updated_at) AS updated_at, longhaul_time(due_at) AS due_at,
    longhaul_time(started_at) AS started_at, longhaul_time(last_attempt_at) AS last_attempt_at,
    longhaul_time(finished_at) AS finished_at, longhaul_time(deadline_at) AS deadline_at, timeout_ms,
    node_id, host, children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;

CREATE VIEW v_attempts AS
SELECT task_id, attempt, outcome, node_id, host, longhaul_time(started_at) AS started_at,
    longhaul_time(ended_at) AS ended_at, error
FROM attempts
UNION ALL
SELECT t.id, t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    t.node_id, t.host, longhaul_time(t.last_attempt_at), longhaul_time(t.finished_at), t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);

CREATE VIEW v_dead_letters AS
SELECT id AS task_id, owner, task_type, task_key, queue, status, attempt, retry_count, crash_count,
    longhaul_time(finished_at) AS finished_at, error, parameters
FROM tasks
WHERE status IN ('FAILED', 'DEAD_LETTER');

CREATE VIEW v_counts AS
SELECT queue, task_type, label AS status, sum(n)::bigint AS tasks
FROM (
    SELECT queue, task_type, label, n FROM tallies WHERE measure = 'status' AND span_start = 0
    UNION ALL
    SELECT queue, task_type, label, n FROM tally_deltas WHERE measure = 'status' AND span_start = 0
) AS entries
GROUP BY queue, task_type, label
HAVING sum(n) <> 0;

CREATE VIEW v_statistics AS
SELECT longhaul_time(span_start) AS hour, queue, task_type, label AS status, measure, bucket,
    CASE WHEN measure IN ('wait', 'run') THEN round(power(2, (bucket + 0.5) / 4.0) / 1000.0, 3) END AS milliseconds,
    sum(n)::bigint AS tasks
FROM (
    SELECT span_start, queue, task_type, measure, label, bucket, n FROM tallies WHERE span_start > 0
    UNION ALL
    SELECT span_start, queue, task_type, measure, label, bucket, n FROM tally_deltas WHERE span_start > 0
) AS entries
GROUP BY span_start, queue, task_type, measure, label, bucket
HAVING sum(n) <> 0;
