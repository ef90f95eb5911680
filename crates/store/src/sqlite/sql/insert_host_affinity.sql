INSERT INTO host_affinity (task_id, host, due_at)
SELECT unhex(value ->> 'task_id'), value ->> 'host', value ->> 'due_at' FROM json_each(?1)
WHERE true
ON CONFLICT (task_id) DO UPDATE SET host = excluded.host, due_at = excluded.due_at
