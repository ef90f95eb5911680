-- The whole rows, with their numbers behind them and the priority of the lane that they stand in.
SELECT {task_columns_of_tasks}, tasks.rowid, lanes.priority
FROM tasks INDEXED BY sqlite_autoindex_tasks_1
CROSS JOIN lanes
WHERE tasks.id IN (SELECT unhex(value) FROM json_each(?2))
    AND lanes.id = tasks.lane AND tasks.due_at <= {now}
    AND tasks.task_type IN (SELECT value FROM json_each(?3))
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queues.name = tasks.queue AND queues.paused_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = ?4 AND nodes.lost_at IS NULL)
