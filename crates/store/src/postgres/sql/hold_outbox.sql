UPDATE outbox SET leased_until = {now} + $2, tries = tries + 1
WHERE id IN (SELECT value::bigint FROM json_array_elements_text($3::json))
