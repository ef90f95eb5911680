-- What is written first about an attempt stays.
INSERT INTO attempts (task_id, attempt, outcome, node_id, host, started_at, ended_at, error)
SELECT task_id, attempt, outcome, node_id, host, started_at, ended_at, error
FROM json_to_recordset($1::json) AS r(task_id uuid, attempt integer, outcome text, node_id uuid, host text,
    started_at bigint, ended_at bigint, error text)
ON CONFLICT DO NOTHING
