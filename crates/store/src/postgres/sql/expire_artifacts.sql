UPDATE artifacts SET expires_at = LEAST(expires_at, {now}), sweep_at = {now}
WHERE cleaned_at IS NULL AND task_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($2::json)))
