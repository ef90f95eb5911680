SELECT id FROM tasks INDEXED BY tasks_status_type
WHERE status = 'RUNNING' AND status <> 'COMPLETED'
    AND (updated_at <= {now} - ?2 OR last_attempt_at + timeout_ms * 1000 <= {now} - ?3)
ORDER BY id
LIMIT ?4
