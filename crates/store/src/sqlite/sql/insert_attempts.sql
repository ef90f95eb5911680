-- What is written first about an attempt stays.
INSERT INTO attempts (task_id, attempt, outcome, node_id, host, started_at, ended_at, error)
SELECT unhex(value ->> 'task_id'), value ->> 'attempt', value ->> 'outcome', unhex(value ->> 'node_id'),
    value ->> 'host', value ->> 'started_at', value ->> 'ended_at', value ->> 'error'
FROM json_each(?1)
WHERE true
ON CONFLICT DO NOTHING
