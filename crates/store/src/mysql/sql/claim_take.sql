UPDATE JSON_TABLE(?2, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(wanted.task_id)
SET status = 'RUNNING', lane = NULL, attempt = attempt + 1, lease_token = RANDOM_BYTES(16),
    node_id = ?3, host = ?4, started_at = COALESCE(started_at, {now}), last_attempt_at = {now},
    updated_at = {now}, version = version + 1
WHERE tasks.lane IS NOT NULL
