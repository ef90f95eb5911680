-- Ends what has neither parent nor children to think of; the rest takes the longer way.
UPDATE JSON_TABLE(?2, '$[*]' COLUMNS (id CHAR(32) PATH '$.id', attempt INT PATH '$.attempt',
    token CHAR(32) PATH '$.token', result LONGTEXT CHARACTER SET utf8mb4 PATH '$.result', result_url TEXT CHARACTER SET utf8mb4 PATH '$.result_url')) AS r
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(r.id)
SET tasks.status = 'COMPLETED', tasks.result = r.result, tasks.result_url = r.result_url, tasks.error = NULL,
    tasks.expires_at = NULL, tasks.finished_at = {now}, tasks.updated_at = {now}, tasks.version = tasks.version + 1
WHERE tasks.status = 'RUNNING' AND tasks.attempt = r.attempt AND tasks.lease_token = UNHEX(r.token)
    AND tasks.parent_id IS NULL AND tasks.children_total = 0 AND NOT tasks.finish_step
