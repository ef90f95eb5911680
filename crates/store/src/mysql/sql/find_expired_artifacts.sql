SELECT artifacts.id, artifacts.task_id, artifacts.attempt, artifacts.artifact_key, artifacts.file_name, artifacts.content_type,
    artifacts.bytes, artifacts.created_at, artifacts.expires_at, artifacts.cleaned_at, artifacts.failures
FROM artifacts
WHERE sweep_at <= {now}
ORDER BY sweep_at
LIMIT ?2
