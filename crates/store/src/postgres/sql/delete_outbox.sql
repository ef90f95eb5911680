DELETE FROM outbox WHERE id IN (SELECT value::bigint FROM json_array_elements_text($1::json))
