-- As an array: a join with the list could be planned as a scan of the whole table.
DELETE FROM task_logs WHERE task_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($1::json)))
