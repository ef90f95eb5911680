-- What handlers say to the people who look at their tasks. A line's id is its number: it grows with each line, is never
-- given twice, and tells a reader where to go on.
CREATE TABLE task_logs (
    id        BIGINT AUTO_INCREMENT PRIMARY KEY,
    task_id   BINARY(16) NOT NULL,
    attempt   INT NOT NULL,
    level     VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message   TEXT NOT NULL,
    logged_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX task_logs_task ON task_logs (task_id, id);

CREATE VIEW v_logs AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    id AS number, attempt, level, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL logged_at MICROSECOND AS logged_at, message
FROM task_logs;
