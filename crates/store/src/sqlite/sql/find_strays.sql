SELECT id, attempt, lease_token FROM tasks INDEXED BY tasks_status_type
WHERE status = 'RUNNING' AND status <> 'COMPLETED' AND node_id = ?2 AND lease_token IS NOT NULL AND last_attempt_at <= {now} - ?3
ORDER BY id
LIMIT ?4
