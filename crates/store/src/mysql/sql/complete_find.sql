-- What runs and has neither parent nor children to think of. Whether the attempt that reports is the one that runs is seen in
-- its number and token.
SELECT id, attempt, lease_token, queue, task_type, GREATEST(due_at, created_at), last_attempt_at, updated_at, {now}
FROM tasks FORCE INDEX (PRIMARY)
WHERE id IN ({row}?{/row}) AND status = 'RUNNING' AND parent_id IS NULL AND children_total = 0 AND NOT finish_step
FOR UPDATE
