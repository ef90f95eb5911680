-- In the order given: the numbers follow it.
INSERT INTO task_logs (task_id, attempt, level, message, logged_at)
SELECT UNHEX(r.task_id), r.attempt, r.level, r.message, {now}
FROM JSON_TABLE(?2, '$[*]' COLUMNS (place FOR ORDINALITY, task_id CHAR(32) PATH '$.task_id', attempt INT PATH '$.attempt',
    level VARCHAR(20) CHARACTER SET utf8mb4 PATH '$.level', message LONGTEXT CHARACTER SET utf8mb4 PATH '$.message')) AS r
ORDER BY r.place
