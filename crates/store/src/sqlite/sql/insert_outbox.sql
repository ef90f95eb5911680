INSERT INTO outbox (topic, task_id, body, created_at)
SELECT value ->> 'topic', unhex(value ->> 'task_id'), value ->> 'body', {now}
FROM json_each(?2)
