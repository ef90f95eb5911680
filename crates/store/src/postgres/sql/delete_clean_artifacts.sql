DELETE FROM artifacts WHERE cleaned_at IS NOT NULL AND task_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($1::json)))
