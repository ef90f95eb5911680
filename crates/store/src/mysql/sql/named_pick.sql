-- Those of them that nobody has claimed, moved or is changing, and the time.
SELECT {task_columns}, {now} FROM tasks FORCE INDEX (PRIMARY)
WHERE id IN ({row}?{/row}) AND lane IS NOT NULL AND due_at <= {now}
FOR UPDATE SKIP LOCKED
