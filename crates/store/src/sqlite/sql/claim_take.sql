-- The numbers may be anything that somebody wrote: SQLite does not mind. An attempt that cannot be counts as none.
UPDATE tasks SET status = 'RUNNING', lane = NULL,
    attempt = iif(CAST(attempt AS integer) BETWEEN 0 AND 1000000000, CAST(attempt AS integer), 0) + 1, lease_token = ?3,
    node_id = ?4, host = ?5, started_at = COALESCE(started_at, max({now}, CAST(updated_at AS integer))),
    last_attempt_at = max({now}, CAST(updated_at AS integer)), updated_at = max({now}, CAST(updated_at AS integer)),
    version = max(CAST(version AS integer), 0) + 1
WHERE rowid = ?2 AND lane IS NOT NULL
