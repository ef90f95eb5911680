SELECT {task_columns} FROM tasks
WHERE id > ?11 AND id < ?12
    AND {list_filter}
ORDER BY id DESC
LIMIT ?13
