-- Ends what has neither parent nor children to think of; the rest takes the longer way.
UPDATE tasks INDEXED BY sqlite_autoindex_tasks_1 SET status = 'COMPLETED', result = r.value ->> 'result', result_url = r.value ->> 'result_url',
    error = NULL, expires_at = NULL, finished_at = {now}, updated_at = {now}, version = version + 1
FROM json_each(?2) AS r
WHERE tasks.id = unhex(r.value ->> 'id') AND tasks.status = 'RUNNING' AND tasks.attempt = r.value ->> 'attempt'
    AND tasks.lease_token = unhex(r.value ->> 'token')
    AND tasks.parent_id IS NULL AND tasks.children_total = 0 AND NOT tasks.finish_step
RETURNING id, queue, task_type, attempt, due_at, last_attempt_at, finished_at
