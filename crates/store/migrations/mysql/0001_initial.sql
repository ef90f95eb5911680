-- The whole schema of version 1. A migration is never edited once it is released: a later change to
-- the schema is a new file with the next number, under the same name for every database.
--
-- Times are microseconds since 1970 in UTC. Ids are the 16 bytes of a UUID; the views show them as
-- text.
-- Names that users choose are VARBINARY: no collation may take 'a' for 'A', or 'x ' for 'x'.

-- A lane is what tasks that differ only in their due time share: queue, type and priority.
-- Priority 10 is for promoted tasks, which stand before all others; no request can ask for it.
CREATE TABLE lanes (
    id        INT AUTO_INCREMENT PRIMARY KEY,
    queue     VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_type VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    priority  SMALLINT NOT NULL CHECK (priority BETWEEN 1 AND 10),
    UNIQUE (queue, task_type, priority)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE queues (
    name      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    paused_at BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE tasks (
    id                   BINARY(16) PRIMARY KEY,
    parent_id            BINARY(16),
    created_at           BIGINT NOT NULL,
    updated_at           BIGINT NOT NULL,
    due_at               BIGINT NOT NULL,
    started_at           BIGINT,
    last_attempt_at      BIGINT,
    finished_at          BIGINT,
    deadline_at          BIGINT,
    -- The deadline while the task is open: the column that the expiry looks for.
    expires_at           BIGINT,
    timeout_ms           BIGINT,
    version              BIGINT NOT NULL DEFAULT 1,
    -- Set exactly while the task can be claimed; a claim never meets a NULL in its index.
    lane                 INT,
    attempt              INT NOT NULL DEFAULT 0,
    max_attempts         INT NOT NULL DEFAULT 5,
    retry_count          INT NOT NULL DEFAULT 0,
    snooze_count         INT NOT NULL DEFAULT 0,
    crash_count          INT NOT NULL DEFAULT 0,
    children_total       INT NOT NULL DEFAULT 0,
    children_completed   INT NOT NULL DEFAULT 0,
    children_with_errors INT NOT NULL DEFAULT 0,
    children_failed      INT NOT NULL DEFAULT 0,
    children_cancelled   INT NOT NULL DEFAULT 0,
    priority             SMALLINT NOT NULL DEFAULT 1,
    finish_step          BOOLEAN NOT NULL DEFAULT 0,
    status               VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'QUEUED',
    phase                VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'run',
    owner                VARBINARY(200) NOT NULL,
    tier                 VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    task_type            VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_key             VARBINARY(200),
    queue                VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    lease_token          BINARY(16),
    node_id              BINARY(16),
    host                 VARCHAR(200),
    -- JSON; NULL is the default policy.
    retry_policy         TEXT,
    parameters           LONGTEXT NOT NULL,
    checkpoint           LONGTEXT,
    progress             LONGTEXT,
    result               LONGTEXT,
    result_url           TEXT,
    error                MEDIUMTEXT,
    memo                 LONGTEXT,
    correlation_id       VARCHAR(200),
    trace_context        VARCHAR(200),
    artifact_expires_at  BIGINT,
    artifact_state       VARCHAR(40),
    -- Padding, so that an update does not make the row larger: a row is submitted with 128 bytes, a
    -- claim leaves 48, and the end of a plain success none. Pages are full when their tasks are
    -- submitted, and InnoDB would reorganise and log a whole page for every few rows that grow.
    reserve              VARBINARY(128) DEFAULT '................................................................................................................................',
    -- A waiting task without a lane would never be claimed, and nothing would report it.
    CONSTRAINT tasks_lane CHECK ((lane IS NOT NULL) = (status IN ('QUEUED', 'RETRYING')))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX tasks_claim ON tasks (lane, due_at, id);
CREATE INDEX tasks_owner_status ON tasks (owner, status, id);
CREATE INDEX tasks_status_type ON tasks (status, task_type, id);
CREATE INDEX tasks_key ON tasks (task_key, id);
CREATE INDEX tasks_parent ON tasks (parent_id, id);
CREATE INDEX tasks_expires ON tasks (expires_at, id);

-- Attempts that their task has moved on from. The latest attempt is in the task's own row.
CREATE TABLE attempts (
    task_id    BINARY(16) NOT NULL,
    attempt    INT NOT NULL,
    outcome    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    node_id    BINARY(16),
    host       VARCHAR(200),
    started_at BIGINT,
    ended_at   BIGINT,
    error      MEDIUMTEXT,
    PRIMARY KEY (task_id, attempt)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE idempotency_keys (
    owner      VARBINARY(200) NOT NULL,
    idempotency_key VARBINARY(200) NOT NULL,
    -- The digest of the request's body, in hexadecimal.
    digest     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_id    BINARY(16) NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (owner, idempotency_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

CREATE TABLE nodes (
    id           BINARY(16) PRIMARY KEY,
    name         VARCHAR(200) NOT NULL,
    host         VARCHAR(200) NOT NULL,
    started_at   BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    lost_at      BIGINT,
    -- JSON: the queues, task types and slots of the node, as it registered them.
    serves       MEDIUMTEXT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE maintenance_leases (
    name         VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    node_id      BINARY(16),
    epoch        BIGINT NOT NULL,
    leased_until BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE outbox (
    id           BIGINT AUTO_INCREMENT PRIMARY KEY,
    topic        VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_id      BINARY(16) NOT NULL,
    body         LONGTEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    leased_until BIGINT NOT NULL DEFAULT 0,
    tries        INT NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Each transaction appends what it changed to count_deltas; maintenance folds the rows into
-- task_counts. The sum over both tables is exact.
CREATE TABLE count_deltas (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    span_start BIGINT NOT NULL,
    queue      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_type  VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    measure    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    label      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket     INT NOT NULL,
    n          BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE task_counts (
    span_start BIGINT NOT NULL,
    queue      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_type  VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    measure    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    label      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket     INT NOT NULL,
    n          BIGINT NOT NULL,
    PRIMARY KEY (span_start, queue, task_type, measure, label, bucket)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Tasks of dead nodes that only nodes of the same host may claim until due_at.
CREATE TABLE host_affinity (
    task_id BINARY(16) PRIMARY KEY,
    host    VARBINARY(200) NOT NULL,
    due_at  BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX host_affinity_host ON host_affinity (host, task_id);

-- Log lines of handlers. The id is the line's number: it grows with each line and is never given
-- twice, so a reader continues after the last number it has seen.
CREATE TABLE task_logs (
    id        BIGINT AUTO_INCREMENT PRIMARY KEY,
    task_id   BINARY(16) NOT NULL,
    attempt   INT NOT NULL,
    level     VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message   TEXT NOT NULL,
    logged_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX task_logs_task ON task_logs (task_id, id);

-- Files that tasks made. The bytes are in the artifact store under artifact_key. A file is
-- published when the result of its attempt is accepted. sweep_at is when the bytes are to be
-- deleted; it is NULL once they are.
CREATE TABLE artifacts (
    id           BINARY(16) PRIMARY KEY,
    task_id      BINARY(16) NOT NULL,
    attempt      INT NOT NULL,
    artifact_key VARCHAR(200) NOT NULL,
    file_name    VARCHAR(255) NOT NULL,
    content_type VARCHAR(200) NOT NULL,
    bytes        BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    sweep_at     BIGINT,
    cleaned_at   BIGINT,
    failures     INT NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX artifacts_task ON artifacts (task_id);
CREATE INDEX artifacts_sweep ON artifacts (sweep_at);

-- Access tokens. The token itself is never stored. The id is its public half, the digest is the
-- SHA-256 of the whole token in 64 hexadecimal digits, and scopes are separated by spaces.
CREATE TABLE tokens (
    id           VARBINARY(100) PRIMARY KEY,
    digest       CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    prefix       VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    owner        VARBINARY(200) NOT NULL,
    tier         VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin,
    scopes       TEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name         VARCHAR(200) NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at   BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Views for people: the same names and columns on every database.
CREATE VIEW v_tasks AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(parent_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS parent_task_id,
    CONVERT(owner USING utf8mb4) AS owner, tier, task_type,
    CONVERT(task_key USING utf8mb4) AS task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL created_at MICROSECOND AS created_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL updated_at MICROSECOND AS updated_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL due_at MICROSECOND AS due_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL started_at MICROSECOND AS started_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL last_attempt_at MICROSECOND AS last_attempt_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL finished_at MICROSECOND AS finished_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL deadline_at MICROSECOND AS deadline_at, timeout_ms,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(node_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS node_id,
    host,
    children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;

CREATE VIEW v_attempts AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    attempt, outcome,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(node_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS node_id,
    host, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL started_at MICROSECOND AS started_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL ended_at MICROSECOND AS ended_at, error
FROM attempts
UNION ALL
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(t.id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')),
    t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(t.node_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')),
    t.host, TIMESTAMP '1970-01-01 00:00:00' + INTERVAL t.last_attempt_at MICROSECOND,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL t.finished_at MICROSECOND, t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);

CREATE VIEW v_logs AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    id AS number, attempt, level,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL logged_at MICROSECOND AS logged_at, message
FROM task_logs;

CREATE VIEW v_artifacts AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    attempt, artifact_key, file_name, content_type, bytes,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL created_at MICROSECOND AS created_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL expires_at MICROSECOND AS expires_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL cleaned_at MICROSECOND AS cleaned_at, failures
FROM artifacts;

CREATE VIEW v_dead_letters AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    CONVERT(owner USING utf8mb4) AS owner, task_type, CONVERT(task_key USING utf8mb4) AS task_key,
    queue, status, attempt, retry_count, crash_count,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL finished_at MICROSECOND AS finished_at, error,
    parameters
FROM tasks
WHERE status IN ('FAILED', 'DEAD_LETTER');

CREATE VIEW v_counts AS
SELECT queue, task_type, label AS status, sum(n) AS tasks
FROM (
    SELECT queue, task_type, label, n FROM task_counts WHERE measure = 'status' AND span_start = 0
    UNION ALL
    SELECT queue, task_type, label, n FROM count_deltas WHERE measure = 'status' AND span_start = 0
) AS entries
GROUP BY queue, task_type, label
HAVING sum(n) <> 0;

CREATE VIEW v_statistics AS
SELECT TIMESTAMP '1970-01-01 00:00:00' + INTERVAL span_start MICROSECOND AS hour, queue, task_type,
    label AS status, measure, bucket,
    CASE WHEN measure IN ('wait', 'run') THEN round(power(2, (bucket + 0.5) / 4.0) / 1000.0, 3) END AS milliseconds,
    sum(n) AS tasks
FROM (
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM task_counts WHERE span_start > 0
    UNION ALL
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM count_deltas WHERE span_start > 0
) AS entries
GROUP BY span_start, queue, task_type, measure, label, bucket
HAVING sum(n) <> 0;

-- Submit from any language, inside the caller's own transaction. The arguments: type, parameters,
-- owner, queue, priority, run_at (UTC), key, attempts, correlation; NULL takes the default. The id
-- is in @longhaul_task_id afterwards.
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
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, new_queue, new_type, 'status', 'QUEUED', 0, 1);
    SET @longhaul_task_id = LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-'));
END
