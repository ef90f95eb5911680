-- Counted task by task: a join could be planned as a scan of the whole table.
SELECT wanted.id, counted.n
FROM (SELECT value::uuid AS id FROM json_array_elements_text($1::json)) AS wanted
CROSS JOIN LATERAL (SELECT count(*) AS n FROM task_logs WHERE task_id = wanted.id) AS counted
WHERE counted.n > $2
