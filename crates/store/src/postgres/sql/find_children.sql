SELECT id, parent_id, status FROM tasks
WHERE parent_id IN (SELECT value::uuid FROM json_array_elements_text($1::json))
ORDER BY id
