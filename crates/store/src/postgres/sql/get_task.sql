SELECT {task_columns} FROM tasks WHERE id = $1
