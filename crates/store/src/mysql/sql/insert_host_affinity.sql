INSERT INTO host_affinity (task_id, host, due_at)
SELECT UNHEX(kept.task_id), kept.host, kept.due_at
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$.task_id',
    host VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.host', due_at BIGINT PATH '$.due_at')) AS kept
ON DUPLICATE KEY UPDATE host = kept.host, due_at = kept.due_at
