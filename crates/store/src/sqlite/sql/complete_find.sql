-- What has neither parent nor children to think of and is still run by the attempt that reports.
SELECT json_array(hex(tasks.id), queue, task_type, tasks.attempt, due_at, last_attempt_at, {now}, tasks.rowid) AS packed
FROM json_each(?2) AS r
CROSS JOIN tasks ON tasks.id = unhex(r.value ->> 'id')
WHERE tasks.status = 'RUNNING' AND tasks.attempt = r.value ->> 'attempt'
    AND tasks.lease_token = unhex(r.value ->> 'token')
    AND tasks.parent_id IS NULL AND tasks.children_total = 0 AND NOT tasks.finish_step
