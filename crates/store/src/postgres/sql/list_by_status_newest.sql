SELECT {task_columns} FROM tasks
WHERE status = $14 AND status <> 'COMPLETED' AND task_type = $15 AND id > $11 AND id < $12
    AND {list_filter}
ORDER BY id DESC
LIMIT $13
