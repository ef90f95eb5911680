SELECT id FROM tasks
WHERE status = 'RUNNING'
    AND (updated_at <= {now} - ?2 OR last_attempt_at + timeout_ms * 1000 <= {now} - ?3)
ORDER BY id
LIMIT ?4
