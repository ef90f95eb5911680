UPDATE tasks SET status = 'RUNNING', lane = NULL, attempt = attempt + 1, lease_token = randomblob(16),
    node_id = ?3, host = ?4, started_at = COALESCE(started_at, {now}), last_attempt_at = {now},
    updated_at = {now}, version = version + 1
WHERE rowid IN (SELECT value FROM json_each(?2)) AND lane IS NOT NULL
