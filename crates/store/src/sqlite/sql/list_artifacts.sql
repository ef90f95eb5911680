SELECT artifacts.id, artifacts.task_id, artifacts.attempt, artifacts.artifact_key, artifacts.file_name, artifacts.content_type,
    artifacts.bytes, artifacts.created_at, artifacts.expires_at, artifacts.cleaned_at, artifacts.failures, tasks.status, tasks.attempt, attempts.outcome
FROM artifacts
JOIN tasks ON tasks.id = artifacts.task_id
LEFT JOIN attempts ON attempts.task_id = artifacts.task_id AND attempts.attempt = artifacts.attempt
WHERE artifacts.task_id = ?1
ORDER BY artifacts.created_at, artifacts.id
