UPDATE tasks SET status = 'RUNNING', lane = NULL, attempt = attempt + 1, lease_token = ?3,
    node_id = ?4, host = ?5, started_at = COALESCE(started_at, max({now}, updated_at)),
    last_attempt_at = max({now}, updated_at), updated_at = max({now}, updated_at), version = version + 1
WHERE rowid = ?2 AND lane IS NOT NULL
