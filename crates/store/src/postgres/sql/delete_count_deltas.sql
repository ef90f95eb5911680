DELETE FROM count_deltas WHERE ctid = ANY (ARRAY(SELECT value::tid FROM json_array_elements_text($1::json)))
