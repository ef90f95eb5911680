UPDATE artifacts SET failures = failures + 1, sweep_at = {now} + $2
WHERE cleaned_at IS NULL AND id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($3::json)))
