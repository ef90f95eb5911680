-- What has neither parent nor children to think of and is still run by the attempt that reports.
SELECT tasks.id, queue, task_type, tasks.attempt, GREATEST(due_at, created_at), last_attempt_at, {now}
FROM JSON_TABLE(?2, '$[*]' COLUMNS (id CHAR(32) PATH '$.id', attempt INT PATH '$.attempt',
    token CHAR(32) PATH '$.token', result LONGTEXT CHARACTER SET utf8mb4 PATH '$.result', result_url TEXT CHARACTER SET utf8mb4 PATH '$.result_url')) AS r
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(r.id)
WHERE tasks.status = 'RUNNING' AND tasks.attempt = r.attempt AND tasks.lease_token = UNHEX(r.token)
    AND tasks.parent_id IS NULL AND tasks.children_total = 0 AND NOT tasks.finish_step
FOR UPDATE
