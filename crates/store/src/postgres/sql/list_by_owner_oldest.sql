SELECT {task_columns} FROM tasks
WHERE owner = $14 AND status = $15 AND status <> 'RUNNING' AND id > $11 AND id < $12
    AND {list_filter}
ORDER BY id ASC
LIMIT $13
