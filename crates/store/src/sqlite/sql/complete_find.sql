-- A task that the reporting attempt still runs and that has neither parent nor children to think of; the rest takes the
-- longer way.
SELECT rowid, queue, task_type, CAST(max(due_at, created_at) AS integer), last_attempt_at, updated_at FROM tasks INDEXED BY sqlite_autoindex_tasks_1
WHERE id = ?1 AND status = 'RUNNING' AND attempt = ?2 AND lease_token = ?3
    AND parent_id IS NULL AND children_total = 0 AND NOT finish_step
