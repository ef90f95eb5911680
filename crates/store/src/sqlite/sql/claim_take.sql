UPDATE tasks SET status = 'RUNNING', lane = NULL, attempt = attempt + 1, lease_token = ?3,
    node_id = ?4, host = ?5, started_at = COALESCE(started_at, {now}), last_attempt_at = {now},
    updated_at = {now}, version = version + 1
WHERE rowid = ?2 AND lane IS NOT NULL
