-- What was read of the row decides: SQLite does not mind what somebody wrote into it.
UPDATE tasks SET status = 'RUNNING', lane = NULL, lease_token = ?2, node_id = ?3, host = ?4, attempt = ?5, version = ?6,
    started_at = ?7, last_attempt_at = ?8, updated_at = ?8
WHERE rowid = ?1 AND lane IS NOT NULL
