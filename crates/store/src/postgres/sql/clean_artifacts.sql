UPDATE artifacts SET cleaned_at = {now}, sweep_at = NULL WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($2::json)))
