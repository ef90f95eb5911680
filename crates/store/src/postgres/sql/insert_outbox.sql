INSERT INTO outbox (topic, task_id, body, created_at)
SELECT topic, task_id, body, {now}
FROM json_to_recordset($2::json) AS r(topic text, task_id uuid, body text)
