SELECT {task_columns} FROM tasks
WHERE task_key = $5 AND id > $11 AND id < $12
    AND {list_filter}
ORDER BY id ASC
LIMIT $13
