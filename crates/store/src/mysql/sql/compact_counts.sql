INSERT INTO task_counts (span_start, queue, task_type, measure, label, bucket, n)
SELECT r.span_start, r.queue, r.task_type, r.measure, r.label, r.bucket, r.n
FROM JSON_TABLE(?1, '$[*]' COLUMNS (span_start BIGINT PATH '$.span_start', queue VARCHAR(100) CHARACTER SET utf8mb4 PATH '$.queue',
    task_type VARCHAR(100) CHARACTER SET utf8mb4 PATH '$.task_type', measure VARCHAR(20) CHARACTER SET utf8mb4 PATH '$.measure', label VARCHAR(40) CHARACTER SET utf8mb4 PATH '$.label',
    bucket INT PATH '$.bucket', n BIGINT PATH '$.n')) AS r
ON DUPLICATE KEY UPDATE n = task_counts.n + VALUES(n)
