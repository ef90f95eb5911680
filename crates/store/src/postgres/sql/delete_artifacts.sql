DELETE FROM artifacts WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($1::json)))
