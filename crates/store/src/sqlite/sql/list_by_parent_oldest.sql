SELECT {task_columns} FROM tasks
WHERE parent_id = ?6 AND id > ?11 AND id < ?12
    AND {list_filter}
ORDER BY id ASC
LIMIT ?13
