-- Submit from any language, inside the caller's own transaction. The arguments: type, parameters, owner, queue,
-- priority, run_at (UTC), key, attempts, correlation; NULL takes the default. The id comes back in @longhaul_task_id.
--   CALL longhaul_submit('send_mail', '{"to":"a@b.c"}', 'u-1', NULL, NULL, NULL, NULL, NULL, NULL);

CREATE PROCEDURE longhaul_submit(
    IN new_type VARCHAR(1000) CHARACTER SET utf8mb4, IN new_parameters LONGTEXT CHARACTER SET utf8mb4,
    IN new_owner VARCHAR(1000) CHARACTER SET utf8mb4, IN new_queue VARCHAR(1000) CHARACTER SET utf8mb4,
    IN new_priority INT, IN new_run_at DATETIME(6), IN new_key VARCHAR(1000) CHARACTER SET utf8mb4,
    IN new_max_attempts INT, IN new_correlation VARCHAR(1000) CHARACTER SET utf8mb4
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE lane_id INT;
    DECLARE task_id BINARY(16);
    SET new_queue = COALESCE(new_queue, 'free_default');
    SET new_priority = COALESCE(new_priority, 1);
    SET new_max_attempts = COALESCE(new_max_attempts, 5);

    IF new_type IS NULL OR new_type NOT RLIKE '^[A-Za-z0-9_.:/-]{1,100}$' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'type takes 1 to 100 of A-Z a-z 0-9 _ - . : /';
    ELSEIF new_queue NOT RLIKE '^[A-Za-z0-9_.:/-]{1,100}$' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'queue takes 1 to 100 of A-Z a-z 0-9 _ - . : /';
    ELSEIF new_owner IS NULL OR LENGTH(new_owner) NOT BETWEEN 1 AND 200 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'owner takes 1 to 200 bytes';
    ELSEIF LENGTH(new_key) NOT BETWEEN 1 AND 200 OR LENGTH(new_correlation) NOT BETWEEN 1 AND 200 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'key and correlation take 1 to 200 bytes';
    ELSEIF new_priority NOT BETWEEN 1 AND 9 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'priority takes 1 (default) to 9 (first)';
    ELSEIF new_max_attempts NOT BETWEEN 1 AND 1000 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'attempts takes 1 to 1000';
    ELSEIF new_parameters IS NULL OR NOT JSON_VALID(new_parameters) OR LENGTH(new_parameters) > 262144 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'parameters take one JSON document of at most 262144 bytes';
    ELSEIF new_run_at < '1970-01-01' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'run_at takes a time from 1970-01-01 to 9999-12-31';
    END IF;

    SELECT id INTO lane_id FROM lanes
    WHERE queue = new_queue AND task_type = new_type AND priority = new_priority;
    IF lane_id IS NULL THEN
        INSERT INTO lanes (queue, task_type, priority) VALUES (new_queue, new_type, new_priority)
        ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(lanes.id);
        SET lane_id = LAST_INSERT_ID();
    END IF;

    SET task_id = UNHEX(CONCAT(LPAD(HEX(now_us DIV 1000), 12, '0'), '7', SUBSTR(HEX(RANDOM_BYTES(2)), 1, 3),
        SUBSTR('89AB', 1 + FLOOR(RAND() * 4), 1), SUBSTR(HEX(RANDOM_BYTES(8)), 1, 15)));
    INSERT INTO tasks (id, owner, task_type, task_key, queue, priority, lane, max_attempts, parameters,
        correlation_id, created_at, updated_at, due_at)
    VALUES (task_id, new_owner, new_type, new_key, new_queue, new_priority, lane_id, new_max_attempts,
        new_parameters, new_correlation, now_us, now_us,
        COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', new_run_at), now_us));
    INSERT INTO tally_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, new_queue, new_type, 'status', 'QUEUED', 0, 1);
    SET @longhaul_task_id = LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-'));
END
