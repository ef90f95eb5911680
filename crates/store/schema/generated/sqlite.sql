-- Made by `make generate` from a migrated database. Do not edit.

CREATE TABLE artifacts (
    id           blob NOT NULL PRIMARY KEY,
    task_id      blob NOT NULL,
    attempt      integer NOT NULL,
    artifact_key text NOT NULL,
    file_name    text NOT NULL,
    content_type text NOT NULL,
    bytes        integer NOT NULL,
    created_at   integer NOT NULL,
    expires_at   integer NOT NULL,
    sweep_at     integer,
    cleaned_at   integer,
    failures     integer NOT NULL DEFAULT 0
);

CREATE INDEX artifacts_sweep ON artifacts (sweep_at) WHERE sweep_at IS NOT NULL;

CREATE INDEX artifacts_task ON artifacts (task_id);

CREATE TABLE attempts (
    task_id    blob NOT NULL,
    attempt    integer NOT NULL,
    outcome    text NOT NULL,
    node_id    blob,
    host       text,
    started_at integer,
    ended_at   integer,
    error      text,
    PRIMARY KEY (task_id, attempt)
);

CREATE TABLE count_deltas (
    id         INTEGER PRIMARY KEY,
    span_start integer NOT NULL,
    queue      text NOT NULL,
    task_type  text NOT NULL,
    measure    text NOT NULL,
    label      text NOT NULL,
    bucket     integer NOT NULL,
    n          integer NOT NULL
);

CREATE TABLE host_affinity (
    task_id blob NOT NULL PRIMARY KEY,
    host    text NOT NULL,
    due_at  integer NOT NULL
);

CREATE INDEX host_affinity_host ON host_affinity (host, task_id);

CREATE TABLE idempotency_keys (
    owner      text NOT NULL,
    idempotency_key text NOT NULL,
    -- The digest of the request's body, in hexadecimal.
    digest     text NOT NULL,
    task_id    blob NOT NULL,
    expires_at integer NOT NULL,
    PRIMARY KEY (owner, idempotency_key)
);

CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

CREATE TABLE lanes (
    id        INTEGER PRIMARY KEY,
    queue     text NOT NULL,
    task_type text NOT NULL,
    priority  integer NOT NULL CHECK (priority BETWEEN 1 AND 10),
    UNIQUE (queue, task_type, priority)
);

CREATE TABLE maintenance_leases (
    name         text NOT NULL PRIMARY KEY,
    node_id      blob,
    epoch        integer NOT NULL,
    leased_until integer NOT NULL
);

CREATE TABLE nodes (
    id           blob NOT NULL PRIMARY KEY,
    name         text NOT NULL,
    host         text NOT NULL,
    started_at   integer NOT NULL,
    heartbeat_at integer NOT NULL,
    lost_at      integer,
    -- JSON: the queues, task types and slots of the node, as it registered them.
    serves       text
);

CREATE TABLE outbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    topic        text NOT NULL,
    task_id      blob NOT NULL,
    body         text NOT NULL,
    created_at   integer NOT NULL,
    leased_until integer NOT NULL DEFAULT 0,
    tries        integer NOT NULL DEFAULT 0
);

CREATE TABLE queues (
    name      text NOT NULL PRIMARY KEY,
    paused_at integer
);

CREATE TABLE task_counts (
    span_start integer NOT NULL,
    queue      text NOT NULL,
    task_type  text NOT NULL,
    measure    text NOT NULL,
    label      text NOT NULL,
    bucket     integer NOT NULL,
    n          integer NOT NULL,
    PRIMARY KEY (span_start, queue, task_type, measure, label, bucket)
);

CREATE TABLE task_logs (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id   blob NOT NULL,
    attempt   integer NOT NULL,
    level     text NOT NULL,
    message   text NOT NULL,
    logged_at integer NOT NULL
);

CREATE INDEX task_logs_task ON task_logs (task_id);

CREATE TABLE tasks (
    id                   blob NOT NULL PRIMARY KEY,
    parent_id            blob,
    created_at           integer NOT NULL,
    updated_at           integer NOT NULL,
    due_at               integer NOT NULL,
    started_at           integer,
    last_attempt_at      integer,
    finished_at          integer,
    deadline_at          integer,
    -- The deadline while the task is open: the column that the expiry looks for.
    expires_at           integer,
    timeout_ms           integer,
    version              integer NOT NULL DEFAULT 1,
    -- Set exactly while the task can be claimed, so the claim index holds nothing else.
    lane                 integer,
    attempt              integer NOT NULL DEFAULT 0,
    max_attempts         integer NOT NULL DEFAULT 5,
    retry_count          integer NOT NULL DEFAULT 0,
    snooze_count         integer NOT NULL DEFAULT 0,
    crash_count          integer NOT NULL DEFAULT 0,
    children_total       integer NOT NULL DEFAULT 0,
    children_completed   integer NOT NULL DEFAULT 0,
    children_with_errors integer NOT NULL DEFAULT 0,
    children_failed      integer NOT NULL DEFAULT 0,
    children_cancelled   integer NOT NULL DEFAULT 0,
    priority             integer NOT NULL DEFAULT 1,
    finish_step          integer NOT NULL DEFAULT 0,
    status               text NOT NULL DEFAULT 'QUEUED',
    phase                text NOT NULL DEFAULT 'run',
    owner                text NOT NULL,
    tier                 text,
    task_type            text NOT NULL,
    task_key             text,
    queue                text NOT NULL,
    lease_token          blob,
    node_id              blob,
    host                 text,
    -- JSON; NULL is the default policy.
    retry_policy         text,
    parameters           text NOT NULL,
    checkpoint           text,
    progress             text,
    result               text,
    result_url           text,
    error                text,
    memo                 text,
    correlation_id       text,
    trace_context        text,
    artifact_expires_at  integer,
    artifact_state       text,
    -- A waiting task without a lane would never be claimed, and nothing would report it.
    CONSTRAINT tasks_lane CHECK ((lane IS NOT NULL) = (status IN ('QUEUED', 'RETRYING')))
);

CREATE INDEX tasks_claim ON tasks (lane, due_at, id) WHERE lane IS NOT NULL;

CREATE INDEX tasks_expires ON tasks (expires_at, id) WHERE expires_at IS NOT NULL;

CREATE INDEX tasks_key ON tasks (task_key, id) WHERE task_key IS NOT NULL;

CREATE INDEX tasks_owner_status ON tasks (owner, status, id) WHERE status <> 'RUNNING';

CREATE INDEX tasks_parent ON tasks (parent_id, id) WHERE parent_id IS NOT NULL;

CREATE INDEX tasks_status_type ON tasks (status, task_type, id) WHERE status <> 'COMPLETED';

CREATE TABLE tokens (
    id           text NOT NULL PRIMARY KEY,
    digest       text NOT NULL,
    prefix       text NOT NULL,
    owner        text NOT NULL,
    tier         text,
    scopes       text NOT NULL,
    name         text NOT NULL,
    created_at   integer NOT NULL,
    expires_at   integer NOT NULL,
    last_used_at integer,
    revoked_at   integer
);

CREATE TRIGGER submit_task_insert INSTEAD OF INSERT ON submit_task
BEGIN
    SELECT CASE
        WHEN NEW.task_type IS NULL OR NEW.task_type = '' OR length(NEW.task_type) > 100
            OR NEW.task_type GLOB '*[^A-Za-z0-9_.:/-]*'
            THEN raise(ABORT, 'task_type takes 1 to 100 of A-Z a-z 0-9 _ - . : /')
        WHEN typeof(NEW.task_type) <> 'text' OR typeof(NEW.parameters) <> 'text' OR typeof(NEW.owner) <> 'text'
            OR typeof(COALESCE(NEW.queue, '')) <> 'text' OR typeof(COALESCE(NEW.task_key, '')) <> 'text'
            OR typeof(COALESCE(NEW.correlation_id, '')) <> 'text'
            THEN raise(ABORT, 'task_type, parameters, owner, queue, task_key and correlation_id take text, not bytes')
        WHEN NEW.queue = '' OR length(NEW.queue) > 100 OR NEW.queue GLOB '*[^A-Za-z0-9_.:/-]*'
            THEN raise(ABORT, 'queue takes 1 to 100 of A-Z a-z 0-9 _ - . : /')
        WHEN NEW.owner IS NULL OR length(CAST(NEW.owner AS blob)) NOT BETWEEN 1 AND 200
            THEN raise(ABORT, 'owner takes 1 to 200 bytes')
        WHEN length(CAST(NEW.task_key AS blob)) NOT BETWEEN 1 AND 200
            OR length(CAST(NEW.correlation_id AS blob)) NOT BETWEEN 1 AND 200
            THEN raise(ABORT, 'task_key and correlation_id take 1 to 200 bytes')
        WHEN NEW.priority NOT BETWEEN 1 AND 9 OR typeof(COALESCE(NEW.priority, 1)) <> 'integer'
            THEN raise(ABORT, 'priority takes 1 (default) to 9 (first)')
        WHEN NEW.max_attempts NOT BETWEEN 1 AND 1000 OR typeof(COALESCE(NEW.max_attempts, 5)) <> 'integer'
            THEN raise(ABORT, 'max_attempts takes 1 to 1000')
        WHEN NEW.parameters IS NULL OR NOT json_valid(NEW.parameters)
            OR length(CAST(NEW.parameters AS blob)) > 262144
            THEN raise(ABORT, 'parameters take one JSON document of at most 262144 bytes')
        WHEN NEW.run_at NOT BETWEEN 0 AND 253402300799000000 OR typeof(COALESCE(NEW.run_at, 0)) <> 'integer'
            THEN raise(ABORT, 'run_at takes microseconds from 1970-01-01 to 9999-12-31')
        WHEN NEW.task_id IS NOT NULL AND (COALESCE(length(unhex(replace(NEW.task_id, '-', ''))), 0) <> 16
            OR substr(replace(NEW.task_id, '-', ''), 13, 1) <> '7')
            THEN raise(ABORT, 'task_id takes a UUID of version 7 as text')
    END;

    INSERT INTO lanes (queue, task_type, priority)
    VALUES (COALESCE(NEW.queue, 'free_default'), NEW.task_type, COALESCE(NEW.priority, 1))
    ON CONFLICT DO NOTHING;

    INSERT INTO tasks (id, owner, task_type, task_key, queue, priority, lane, max_attempts, parameters,
        correlation_id, created_at, updated_at, due_at)
    SELECT unhex(COALESCE(replace(NEW.task_id, '-', ''),
            printf('%012x7', clock.now / 1000) || substr(hex(randomblob(2)), 1, 3)
            || substr('89ab', 1 + abs(random() % 4), 1) || substr(hex(randomblob(8)), 1, 15))),
        NEW.owner, NEW.task_type, NEW.task_key, lanes.queue, lanes.priority, lanes.id,
        COALESCE(NEW.max_attempts, 5), NEW.parameters, NEW.correlation_id,
        clock.now, clock.now, COALESCE(NEW.run_at, clock.now)
    FROM lanes, (SELECT CAST(unixepoch('subsec') * 1000000 AS integer) AS now) AS clock
    WHERE lanes.queue = COALESCE(NEW.queue, 'free_default') AND lanes.task_type = NEW.task_type
        AND lanes.priority = COALESCE(NEW.priority, 1);

    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, COALESCE(NEW.queue, 'free_default'), NEW.task_type, 'status', 'QUEUED', 0, 1);
END;

CREATE VIEW submit_task AS
SELECT '' AS task_id, task_type, parameters, owner, queue, priority, due_at AS run_at, task_key, max_attempts,
    correlation_id
FROM tasks WHERE false;

CREATE VIEW v_artifacts AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS id,
    lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id,
    attempt, artifact_key, file_name, content_type, bytes,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', expires_at / 1000000, 'unixepoch') || printf('.%06dZ', expires_at % 1000000) AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', cleaned_at / 1000000, 'unixepoch') || printf('.%06dZ', cleaned_at % 1000000) AS cleaned_at,
    failures
FROM artifacts;

CREATE VIEW v_attempts AS
SELECT lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id,
    attempt, outcome,
    NULLIF(lower(substr(hex(node_id), 1, 8) || '-' || substr(hex(node_id), 9, 4) || '-' || substr(hex(node_id), 13, 4) || '-' || substr(hex(node_id), 17, 4) || '-' || substr(hex(node_id), 21)), '----') AS node_id,
    host,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', ended_at / 1000000, 'unixepoch') || printf('.%06dZ', ended_at % 1000000) AS ended_at,
    error
FROM attempts
UNION ALL
SELECT lower(substr(hex(t.id), 1, 8) || '-' || substr(hex(t.id), 9, 4) || '-' || substr(hex(t.id), 13, 4) || '-' || substr(hex(t.id), 17, 4) || '-' || substr(hex(t.id), 21)),
    t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    NULLIF(lower(substr(hex(t.node_id), 1, 8) || '-' || substr(hex(t.node_id), 9, 4) || '-' || substr(hex(t.node_id), 13, 4) || '-' || substr(hex(t.node_id), 17, 4) || '-' || substr(hex(t.node_id), 21)), '----'),
    t.host,
    strftime('%Y-%m-%dT%H:%M:%S', t.last_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', t.last_attempt_at % 1000000),
    strftime('%Y-%m-%dT%H:%M:%S', t.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', t.finished_at % 1000000),
    t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);

CREATE VIEW v_counts AS
SELECT queue, task_type, label AS status, sum(n) AS tasks
FROM (
    SELECT queue, task_type, label, n FROM task_counts WHERE measure = 'status' AND span_start = 0
    UNION ALL
    SELECT queue, task_type, label, n FROM count_deltas WHERE measure = 'status' AND span_start = 0
) AS entries
GROUP BY queue, task_type, label
HAVING sum(n) <> 0;

CREATE VIEW v_dead_letters AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS task_id,
    owner, task_type, task_key, queue, status, attempt, retry_count, crash_count,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    error, parameters
FROM tasks
WHERE status IN ('FAILED', 'DEAD_LETTER');

CREATE VIEW v_logs AS
SELECT lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id,
    id AS number, attempt, level,
    strftime('%Y-%m-%dT%H:%M:%S', logged_at / 1000000, 'unixepoch') || printf('.%06dZ', logged_at % 1000000) AS logged_at,
    message
FROM task_logs;

CREATE VIEW v_statistics AS
SELECT strftime('%Y-%m-%dT%H:%M:%S', span_start / 1000000, 'unixepoch') || printf('.%06dZ', span_start % 1000000) AS hour,
    queue, task_type, label AS status, measure, bucket,
    CASE WHEN measure IN ('wait', 'run') THEN round((1 << (bucket / 4))
        * CASE bucket % 4 WHEN 0 THEN 1.0905 WHEN 1 THEN 1.2968 WHEN 2 THEN 1.5422 ELSE 1.8340 END / 1000.0, 3)
    END AS milliseconds,
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

CREATE VIEW v_tasks AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS task_id,
    NULLIF(lower(substr(hex(parent_id), 1, 8) || '-' || substr(hex(parent_id), 9, 4) || '-' || substr(hex(parent_id), 13, 4) || '-' || substr(hex(parent_id), 17, 4) || '-' || substr(hex(parent_id), 21)), '----') AS parent_task_id,
    owner, tier, task_type, task_key, queue, priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%S', due_at / 1000000, 'unixepoch') || printf('.%06dZ', due_at % 1000000) AS due_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', last_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', last_attempt_at % 1000000) AS last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    strftime('%Y-%m-%dT%H:%M:%S', deadline_at / 1000000, 'unixepoch') || printf('.%06dZ', deadline_at % 1000000) AS deadline_at,
    timeout_ms,
    NULLIF(lower(substr(hex(node_id), 1, 8) || '-' || substr(hex(node_id), 9, 4) || '-' || substr(hex(node_id), 13, 4) || '-' || substr(hex(node_id), 17, 4) || '-' || substr(hex(node_id), 21)), '----') AS node_id,
    host,
    children_total, children_completed, children_with_errors, children_failed, children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;
