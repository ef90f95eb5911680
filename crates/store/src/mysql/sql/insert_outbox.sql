INSERT INTO outbox (topic, task_id, body, created_at)
SELECT r.topic, UNHEX(r.task_id), r.body, {now}
FROM JSON_TABLE(?2, '$[*]' COLUMNS (topic VARCHAR(20) CHARACTER SET utf8mb4 PATH '$.topic', task_id CHAR(32) PATH '$.task_id',
    body LONGTEXT CHARACTER SET utf8mb4 PATH '$.body')) AS r
