-- The whole rows, with their numbers behind them: the same transaction, which is the only one that writes, takes them.
SELECT {task_columns}, rowid FROM tasks
WHERE lane = ?2 AND due_at <= {now} ORDER BY due_at, id LIMIT ?3
