-- In the order given: the numbers follow it.
INSERT INTO task_logs (task_id, attempt, level, message, logged_at)
SELECT unhex(value ->> 'task_id'), value ->> 'attempt', value ->> 'level', value ->> 'message', {now}
FROM json_each(?2)
ORDER BY key
