-- Times are microseconds since 1970 in UTC. Text compares by bytes, as it does in the other databases.

-- The clock that every decision goes by. Stable within a statement, so that indexes can use it.
CREATE FUNCTION longhaul_now() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM statement_timestamp()) * 1000000)::bigint;

-- A lane is what tasks that only differ in their due time share: queue, type and priority.
CREATE TABLE lanes (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue     text COLLATE "C" NOT NULL,
    task_type text COLLATE "C" NOT NULL,
    priority  smallint NOT NULL CHECK (priority BETWEEN 1 AND 9),
    UNIQUE (queue, task_type, priority)
);

CREATE TABLE queues (
    name      text COLLATE "C" PRIMARY KEY,
    paused_at bigint
);

-- Columns of fixed width that are never null come first: the database finds them without walking the row.
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
    -- The deadline while the task is open; what the expiry looks for.
    expires_at           bigint,
    timeout_ms           bigint,
    -- Set exactly while the task can be claimed: the index of claims holds nothing else.
    lane                 integer,
    tier                 text COLLATE "C",
    task_key             text COLLATE "C",
    lease_token          uuid,
    node_id              uuid,
    host                 text,
    -- JSON; absent means the default policy.
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
    artifact_state       text,
    -- A waiting task outside every lane would never be claimed, and nobody would know.
    CONSTRAINT tasks_lane CHECK ((lane IS NOT NULL) = (status IN ('QUEUED', 'RETRYING')))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.5);

CREATE INDEX tasks_claim ON tasks (lane, due_at, id) WHERE lane IS NOT NULL;
-- The way of most tasks is QUEUED, RUNNING, COMPLETED, and each step pays for each index that it enters. Of the running
-- tasks, which are few, an owner's are found among all; the completed ones of all owners, which are most, by their ids.
CREATE INDEX tasks_owner_status ON tasks (owner, status, id) WHERE status <> 'RUNNING';
CREATE INDEX tasks_status_type ON tasks (status, task_type, id) WHERE status <> 'COMPLETED';
CREATE INDEX tasks_key ON tasks (task_key, id) WHERE task_key IS NOT NULL;
CREATE INDEX tasks_parent ON tasks (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_expires ON tasks (expires_at, id) WHERE expires_at IS NOT NULL;

-- Attempts that their task has moved on from. The last one is told by the task's own row.
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
    -- Of the request's body, in hexadecimal.
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
    lost_at      bigint
);

CREATE TABLE duties (
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

-- Counts are kept by appending what each transaction changed and folding it later; their sum is exact.
CREATE TABLE tally_deltas (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    span_start bigint NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task_type  text COLLATE "C" NOT NULL,
    measure    text COLLATE "C" NOT NULL,
    label      text COLLATE "C" NOT NULL,
    bucket     integer NOT NULL,
    n          bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE tallies (
    span_start bigint NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task_type  text COLLATE "C" NOT NULL,
    measure    text COLLATE "C" NOT NULL,
    label      text COLLATE "C" NOT NULL,
    bucket     integer NOT NULL,
    n          bigint NOT NULL,
    PRIMARY KEY (span_start, queue, task_type, measure, label, bucket)
);
