-- The same id again is the same note again.
INSERT INTO artifacts (id, task_id, attempt, artifact_key, file_name, content_type, bytes, created_at, expires_at, sweep_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, {now}, {now} + ?9, {now} + ?9)
ON DUPLICATE KEY UPDATE id = id
