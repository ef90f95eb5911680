DELETE FROM host_affinity WHERE task_id IN (SELECT value::uuid FROM json_array_elements_text($1::json))
