INSERT INTO host_affinity (task_id, host, due_at)
SELECT task_id, host, due_at FROM json_to_recordset($1::json) AS kept(task_id uuid, host text, due_at bigint)
ON CONFLICT (task_id) DO UPDATE SET host = excluded.host, due_at = excluded.due_at
