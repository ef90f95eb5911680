-- The whole schema of version 1. A migration is never edited once it is released: a later change to
-- the schema is a new file with the next number, under the same name for every database.
--
-- Times are microseconds since 1970 in UTC. Text compares by bytes, as on the other databases.

-- The clock of every decision. It does not move within a statement, so indexes can use it.
CREATE FUNCTION longhaul_now() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM statement_timestamp()) * 1000000)::bigint;

-- A lane is what tasks that differ only in their due time share: queue, type and priority.
-- Priority 10 is for promoted tasks, which stand before all others; no request can ask for it.
CREATE TABLE lanes (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue     text COLLATE "C" NOT NULL,
    task_type text COLLATE "C" NOT NULL,
    priority  smallint NOT NULL CHECK (priority BETWEEN 1 AND 10),
    UNIQUE (queue, task_type, priority)
);

CREATE TABLE queues (
    name      text COLLATE "C" PRIMARY KEY,
    paused_at bigint
);

-- Columns of fixed width that are never NULL come first: PostgreSQL reads them without walking the
-- row.
CREATE TABLE tasks (
    id                   uuid PRIMARY KEY,
    created_at           bigint NOT NULL,
    updated_at           bigint NOT NULL,
    due_at               bigint NOT NULL,
    version              bigint NOT NULL DEFAULT 1,
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
    priority             smallint NOT NULL DEFAULT 1,
    finish_step          boolean NOT NULL DEFAULT false,
    status               text COLLATE "C" NOT NULL DEFAULT 'QUEUED',
    phase                text COLLATE "C" NOT NULL DEFAULT 'run',
    owner                text COLLATE "C" NOT NULL,
    task_type            text COLLATE "C" NOT NULL,
    queue                text COLLATE "C" NOT NULL,
    parameters           text NOT NULL,
    parent_id            uuid,
    started_at           bigint,
    last_attempt_at      bigint,
    finished_at          bigint,
    deadline_at          bigint,
    -- The deadline while the task is open: the column that the expiry looks for.
    expires_at           bigint,
    timeout_ms           bigint,
    -- Set exactly while the task can be claimed, so the claim index holds nothing else.
    lane                 integer,
    tier                 text COLLATE "C",
    task_key             text COLLATE "C",
    lease_token          uuid,
    node_id              uuid,
    host                 text,
    -- JSON; NULL is the default policy.
    retry_policy         text,
    checkpoint           text,
    progress             text,
    result               text,
    result_url           text,
    error                text,
    memo                 text,
    correlation_id       text,
    trace_context        text,
    artifact_expires_at  bigint,
    artifact_state       text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.5);

CREATE INDEX tasks_claim ON tasks (lane, due_at, id) WHERE lane IS NOT NULL;
-- Most tasks go QUEUED, RUNNING, COMPLETED, and each step pays for every index it enters. Running
-- tasks, which are few, are left out of the owner's index and found among all running ones.
-- Completed tasks, which are most, are left out of the status index and found by id.
CREATE INDEX tasks_owner_status ON tasks (owner, status, id) WHERE status <> 'RUNNING';
CREATE INDEX tasks_status_type ON tasks (status, task_type, id) WHERE status <> 'COMPLETED';
CREATE INDEX tasks_key ON tasks (task_key, id) WHERE task_key IS NOT NULL;
CREATE INDEX tasks_parent ON tasks (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_expires ON tasks (expires_at, id) WHERE expires_at IS NOT NULL;

-- The rule that a task has a lane exactly while it can be claimed: a waiting task without one would
-- never be claimed, and nothing would report it. PostgreSQL parses a CHECK anew in each statement
-- that writes, which costs a lone submit more than the row; it caches the condition of an index. No
-- row ever enters this index: its expression refuses a row that breaks the rule.
CREATE FUNCTION longhaul_refuse_lane(id uuid, status text, lane integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'tasks', CONSTRAINT = 'tasks_lane',
        MESSAGE = format('the constraint tasks_lane refuses task %s: %s with the lane %s', id, status, COALESCE(lane::text, 'NULL')),
        DETAIL = 'A task has a lane if it is QUEUED or RETRYING, and else none.',
        HINT = 'Submit with longhaul_submit(); cancel, retry and reschedule through the API or the command line.';
END
$$;

CREATE INDEX tasks_lane ON tasks (longhaul_refuse_lane(id, status, lane))
    WHERE (lane IS NOT NULL) <> (status IN ('QUEUED', 'RETRYING'));
COMMENT ON INDEX tasks_lane IS 'A constraint: refuses tasks that wait outside every lane, or do not wait and have one. Never scanned; do not drop.';

-- Attempts that their task has moved on from. The latest attempt is in the task's own row.
CREATE TABLE attempts (
    task_id    uuid NOT NULL,
    attempt    integer NOT NULL,
    outcome    text COLLATE "C" NOT NULL,
    node_id    uuid,
    host       text,
    started_at bigint,
    ended_at   bigint,
    error      text,
    PRIMARY KEY (task_id, attempt)
);

CREATE TABLE idempotency_keys (
    owner      text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    -- The digest of the request's body, in hexadecimal.
    digest     text COLLATE "C" NOT NULL,
    task_id    uuid NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (owner, idempotency_key)
);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

CREATE TABLE nodes (
    id           uuid PRIMARY KEY,
    name         text NOT NULL,
    host         text NOT NULL,
    started_at   bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    lost_at      bigint,
    -- JSON: the queues, task types and slots of the node, as it registered them.
    serves       text
);

CREATE TABLE maintenance_leases (
    name         text COLLATE "C" PRIMARY KEY,
    node_id      uuid,
    epoch        bigint NOT NULL,
    leased_until bigint NOT NULL
);

CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic        text COLLATE "C" NOT NULL,
    task_id      uuid NOT NULL,
    body         text NOT NULL,
    created_at   bigint NOT NULL,
    leased_until bigint NOT NULL DEFAULT 0,
    tries        integer NOT NULL DEFAULT 0
);

-- Each transaction appends what it changed to count_deltas; maintenance folds the rows into
-- task_counts. The sum over both tables is exact. The rows need no id: folding locks them and
-- deletes them by ctid. Logical replication identifies a row by all of its columns.
CREATE TABLE count_deltas (
    span_start bigint NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task_type  text COLLATE "C" NOT NULL,
    measure    text COLLATE "C" NOT NULL,
    label      text COLLATE "C" NOT NULL,
    bucket     integer NOT NULL,
    n          bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE count_deltas REPLICA IDENTITY FULL;

CREATE TABLE task_counts (
    span_start bigint NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task_type  text COLLATE "C" NOT NULL,
    measure    text COLLATE "C" NOT NULL,
    label      text COLLATE "C" NOT NULL,
    bucket     integer NOT NULL,
    n          bigint NOT NULL,
    PRIMARY KEY (span_start, queue, task_type, measure, label, bucket)
);

-- Tasks of dead nodes that only nodes of the same host may claim until due_at.
CREATE TABLE host_affinity (
    task_id uuid PRIMARY KEY,
    host    text COLLATE "C" NOT NULL,
    due_at  bigint NOT NULL
);
CREATE INDEX host_affinity_host ON host_affinity (host, task_id);

-- Log lines of handlers. The id is the line's number: it grows with each line and is never given
-- twice, so a reader continues after the last number it has seen.
CREATE TABLE task_logs (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id   uuid NOT NULL,
    logged_at bigint NOT NULL,
    attempt   integer NOT NULL,
    level     text COLLATE "C" NOT NULL,
    message   text NOT NULL
);
CREATE INDEX task_logs_task ON task_logs (task_id, id);

-- Files that tasks made. The bytes are in the artifact store under artifact_key. A file is
-- published when the result of its attempt is accepted. sweep_at is when the bytes are to be
-- deleted; it is NULL once they are.
CREATE TABLE artifacts (
    id           uuid PRIMARY KEY,
    task_id      uuid NOT NULL,
    attempt      integer NOT NULL,
    bytes        bigint NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint NOT NULL,
    sweep_at     bigint,
    cleaned_at   bigint,
    failures     integer NOT NULL DEFAULT 0,
    artifact_key text COLLATE "C" NOT NULL,
    file_name    text COLLATE "C" NOT NULL,
    content_type text COLLATE "C" NOT NULL
);
CREATE INDEX artifacts_task ON artifacts (task_id);
CREATE INDEX artifacts_sweep ON artifacts (sweep_at) WHERE sweep_at IS NOT NULL;

-- Access tokens. The token itself is never stored. The id is its public half, the digest is the
-- SHA-256 of the whole token in 64 hexadecimal digits, and scopes are separated by spaces.
CREATE TABLE tokens (
    id           text COLLATE "C" PRIMARY KEY,
    digest       text NOT NULL,
    prefix       text NOT NULL,
    owner        text NOT NULL,
    tier         text,
    scopes       text NOT NULL,
    name         text NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint NOT NULL,
    last_used_at bigint,
    revoked_at   bigint
);

-- Views for people: the same names and columns on every database.
CREATE FUNCTION longhaul_time(micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN timestamptz 'epoch' + micros * interval '1 microsecond';

CREATE VIEW v_tasks AS
SELECT id AS task_id, parent_id AS parent_task_id, owner, tier, task_type, task_key, queue,
    priority, status, phase,
    attempt, max_attempts, retry_count, snooze_count, crash_count, version,
    longhaul_time(created_at) AS created_at, longhaul_time(updated_at) AS updated_at,
    longhaul_time(due_at) AS due_at,
    longhaul_time(started_at) AS started_at, longhaul_time(last_attempt_at) AS last_attempt_at,
    longhaul_time(finished_at) AS finished_at, longhaul_time(deadline_at) AS deadline_at,
    timeout_ms,
    node_id, host, children_total, children_completed, children_with_errors, children_failed,
    children_cancelled,
    parameters, checkpoint, progress, result, result_url, error, memo, correlation_id
FROM tasks;

CREATE VIEW v_attempts AS
SELECT task_id, attempt, outcome, node_id, host, longhaul_time(started_at) AS started_at,
    longhaul_time(ended_at) AS ended_at, error
FROM attempts
UNION ALL
SELECT t.id, t.attempt,
    CASE t.status WHEN 'RUNNING' THEN 'running' WHEN 'CANCELLED' THEN 'cancelled'
        WHEN 'COMPLETED' THEN 'completed' WHEN 'COMPLETED_WITH_ERRORS' THEN 'completed' ELSE 'failed' END,
    t.node_id, t.host, longhaul_time(t.last_attempt_at), longhaul_time(t.finished_at), t.error
FROM tasks t
WHERE t.attempt > 0 AND t.status NOT IN ('QUEUED', 'RETRYING', 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt);

CREATE VIEW v_logs AS
SELECT task_id, id AS number, attempt, level, longhaul_time(logged_at) AS logged_at, message
FROM task_logs;

CREATE VIEW v_artifacts AS
SELECT id, task_id, attempt, artifact_key, file_name, content_type, bytes,
    longhaul_time(created_at) AS created_at,
    longhaul_time(expires_at) AS expires_at, longhaul_time(cleaned_at) AS cleaned_at, failures
FROM artifacts;

CREATE VIEW v_dead_letters AS
SELECT id AS task_id, owner, task_type, task_key, queue, status, attempt, retry_count, crash_count,
    longhaul_time(finished_at) AS finished_at, error, parameters
FROM tasks
WHERE status IN ('FAILED', 'DEAD_LETTER');

CREATE VIEW v_counts AS
SELECT queue, task_type, label AS status, sum(n)::bigint AS tasks
FROM (
    SELECT queue, task_type, label, n FROM task_counts WHERE measure = 'status' AND span_start = 0
    UNION ALL
    SELECT queue, task_type, label, n FROM count_deltas WHERE measure = 'status' AND span_start = 0
) AS entries
GROUP BY queue, task_type, label
HAVING sum(n) <> 0;

CREATE VIEW v_statistics AS
SELECT longhaul_time(span_start) AS hour, queue, task_type, label AS status, measure, bucket,
    CASE WHEN measure IN ('wait', 'run') THEN round(power(2, (bucket + 0.5) / 4.0) / 1000.0, 3) END AS milliseconds,
    sum(n)::bigint AS tasks
FROM (
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM task_counts WHERE span_start > 0
    UNION ALL
    SELECT span_start, queue, task_type, measure, label, bucket, n
    FROM count_deltas WHERE span_start > 0
) AS entries
GROUP BY span_start, queue, task_type, measure, label, bucket
HAVING sum(n) <> 0;

-- Submit from any language, inside the caller's own transaction:
--   SELECT longhaul_submit(task_type => 'send_mail', parameters => '{"to":"a@b.c"}', owner => 'u-1');

CREATE FUNCTION longhaul_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (lpad(to_hex(longhaul_now() / 1000), 12, '0') || '7'
    || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid;

CREATE FUNCTION longhaul_submit(
    task_type text, parameters json, owner text, queue text DEFAULT 'free_default', priority integer DEFAULT 1,
    run_at timestamptz DEFAULT NULL, task_key text DEFAULT NULL, max_attempts integer DEFAULT 5,
    correlation_id text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    new_id uuid := longhaul_uuid7();
    lane_id integer;
    label CONSTANT text := '^[A-Za-z0-9_.:/-]{1,100}$';
BEGIN
    IF task_type IS NULL OR task_type !~ label THEN
        RAISE EXCEPTION 'task_type is %; allowed: 1 to 100 of A-Z a-z 0-9 _ - . : /', quote_nullable(task_type);
    ELSIF queue IS NULL OR queue !~ label THEN
        RAISE EXCEPTION 'queue is %; allowed: 1 to 100 of A-Z a-z 0-9 _ - . : /', quote_nullable(queue);
    ELSIF owner IS NULL OR octet_length(owner) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'owner is %; allowed: 1 to 200 bytes', quote_nullable(owner);
    ELSIF octet_length(task_key) NOT BETWEEN 1 AND 200 OR octet_length(correlation_id) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'task_key and correlation_id take 1 to 200 bytes';
    ELSIF priority IS NULL OR priority NOT BETWEEN 1 AND 9 THEN
        RAISE EXCEPTION 'priority is %; allowed: 1 (default) to 9 (first)', priority;
    ELSIF max_attempts IS NULL OR max_attempts NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'max_attempts is %; allowed: 1 to 1000', max_attempts;
    ELSIF parameters IS NULL OR octet_length(parameters::text) > 262144 THEN
        RAISE EXCEPTION 'parameters take one JSON document of at most 262144 bytes';
    ELSIF run_at < timestamptz 'epoch' OR run_at > timestamptz '9999-12-31 23:59:59+00' THEN
        RAISE EXCEPTION 'run_at is %; allowed: a time from 1970-01-01 to 9999-12-31', run_at;
    END IF;

    SELECT l.id INTO lane_id FROM lanes l
    WHERE l.queue = queue AND l.task_type = task_type AND l.priority = priority;
    WHILE lane_id IS NULL LOOP
        INSERT INTO lanes (queue, task_type, priority) VALUES (queue, task_type, priority)
        ON CONFLICT DO NOTHING RETURNING id INTO lane_id;
        IF lane_id IS NULL THEN
            SELECT l.id INTO lane_id FROM lanes l
            WHERE l.queue = queue AND l.task_type = task_type AND l.priority = priority;
        END IF;
    END LOOP;

    INSERT INTO tasks (id, owner, task_type, task_key, queue, priority, lane, max_attempts, parameters,
        correlation_id, created_at, updated_at, due_at)
    VALUES (new_id, owner, task_type, task_key, queue, priority, lane_id, max_attempts, parameters::text,
        correlation_id, longhaul_now(), longhaul_now(),
        COALESCE((extract(epoch FROM run_at) * 1000000)::bigint, longhaul_now()));
    INSERT INTO count_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, queue, task_type, 'status', 'QUEUED', 0, 1);
    RETURN new_id;
END;
$$;
