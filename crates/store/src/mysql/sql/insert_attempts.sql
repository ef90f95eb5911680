-- What is written first about an attempt stays.
INSERT INTO attempts (task_id, attempt, outcome, node_id, host, started_at, ended_at, error)
SELECT UNHEX(r.task_id), r.attempt, r.outcome, UNHEX(r.node_id), r.host, r.started_at, r.ended_at, r.error
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$.task_id', attempt INT PATH '$.attempt',
    outcome VARCHAR(20) CHARACTER SET utf8mb4 PATH '$.outcome', node_id CHAR(32) PATH '$.node_id', host VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.host',
    started_at BIGINT PATH '$.started_at', ended_at BIGINT PATH '$.ended_at', error LONGTEXT CHARACTER SET utf8mb4 PATH '$.error')) AS r
ON DUPLICATE KEY UPDATE outcome = attempts.outcome
