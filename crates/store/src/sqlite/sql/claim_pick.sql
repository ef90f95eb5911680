-- The whole rows, with their numbers behind them and the priority of the lane: the same transaction, which is the only one
-- that writes, takes them.
SELECT {task_columns}, rowid, ?4 FROM tasks
WHERE lane = ?2 AND due_at <= {now} ORDER BY due_at, id LIMIT ?3
