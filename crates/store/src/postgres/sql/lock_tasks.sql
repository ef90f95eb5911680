-- Locked in the order of their ids, so that two changes never wait for each other in a circle.
SELECT {task_columns} FROM tasks
WHERE id IN (SELECT value::uuid FROM json_array_elements_text($1::json))
ORDER BY id FOR UPDATE
