UPDATE JSON_TABLE(?2, '$[*]' COLUMNS (id CHAR(32) PATH '$.id', attempt INT PATH '$.attempt',
    token CHAR(32) PATH '$.token', body LONGTEXT CHARACTER SET utf8mb4 PATH '$.body')) AS r
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(r.id)
SET tasks.progress = r.body, tasks.updated_at = GREATEST({now}, tasks.updated_at), tasks.version = tasks.version + 1
WHERE tasks.status = 'RUNNING' AND tasks.attempt = r.attempt AND tasks.lease_token = UNHEX(r.token)
