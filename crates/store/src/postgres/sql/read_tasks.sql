SELECT {task_columns} FROM tasks
WHERE id IN (SELECT value::uuid FROM json_array_elements_text($1::json))
ORDER BY id
