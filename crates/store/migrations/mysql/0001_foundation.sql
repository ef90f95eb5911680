-- Times are microseconds since 1970 in UTC. Ids are the 16 bytes of a UUID; the views show them as text.
-- Names that users choose are VARBINARY: no collation may take 'a' for 'A', or 'x ' for 'x'.

-- A lane is what tasks that only differ in their due time share: queue, type and priority.
CREATE TABLE lanes (
    id        INT AUTO_INCREMENT PRIMARY KEY,
    queue     VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_type VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    priority  SMALLINT NOT NULL CHECK (priority BETWEEN 1 AND 9),
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
    -- The deadline while the task is open; what the expiry looks for.
    expires_at           BIGINT,
    timeout_ms           BIGINT,
    version              BIGINT NOT NULL DEFAULT 1,
    -- Set exactly while the task can be claimed, so that the claims' part of its index holds nothing else.
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
    -- JSON; absent means the default policy.
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
    -- A waiting task outside every lane would never be claimed, and nobody would know.
    CONSTRAINT tasks_lane CHECK ((lane IS NOT NULL) = (status IN ('QUEUED', 'RETRYING')))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX tasks_claim ON tasks (lane, due_at, id);
CREATE INDEX tasks_owner_status ON tasks (owner, status, id);
CREATE INDEX tasks_status_type ON tasks (status, task_type, id);
CREATE INDEX tasks_key ON tasks (task_key, id);
CREATE INDEX tasks_parent ON tasks (parent_id, id);
CREATE INDEX tasks_expires ON tasks (expires_at, id);

-- Attempts that their task has moved on from. The last one is told by the task's own row.
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
    -- Of the request's body, in hexadecimal.
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
    lost_at      BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE duties (
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

-- Counts are kept by appending what each transaction changed and folding it later; their sum is exact.
CREATE TABLE tally_deltas (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    span_start BIGINT NOT NULL,
    queue      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_type  VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    measure    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    label      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket     INT NOT NULL,
    n          BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE tallies (
    span_start BIGINT NOT NULL,
    queue      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_type  VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    measure    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    label      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket     INT NOT NULL,
    n          BIGINT NOT NULL,
    PRIMARY KEY (span_start, queue, task_type, measure, label, bucket)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
