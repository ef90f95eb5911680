-- Times are microseconds since 1970 in UTC. Ids are the 16 bytes of a UUID; the views show them as text.

-- A lane is what tasks that only differ in their due time share: queue, type and priority.
CREATE TABLE lanes (
    id        INTEGER PRIMARY KEY,
    queue     text NOT NULL,
    task_type text NOT NULL,
    priority  integer NOT NULL CHECK (priority BETWEEN 1 AND 9),
    UNIQUE (queue, task_type, priority)
);

CREATE TABLE queues (
    name      text NOT NULL PRIMARY KEY,
    paused_at integer
);

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
    -- The deadline while the task is open; what the expiry looks for.
    expires_at           integer,
    timeout_ms           integer,
    version              integer NOT NULL DEFAULT 1,
    -- Set exactly while the task can be claimed: the index of claims holds nothing else.
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
    -- JSON; absent means the default policy.
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
    -- A waiting task outside every lane would never be claimed, and nobody would know.
    CONSTRAINT tasks_lane CHECK ((lane IS NOT NULL) = (status IN ('QUEUED', 'RETRYING')))
);

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

CREATE TABLE idempotency_keys (
    owner      text NOT NULL,
    idempotency_key text NOT NULL,
    -- Of the request's body, in hexadecimal.
    digest     text NOT NULL,
    task_id    blob NOT NULL,
    expires_at integer NOT NULL,
    PRIMARY KEY (owner, idempotency_key)
);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

CREATE TABLE nodes (
    id           blob NOT NULL PRIMARY KEY,
    name         text NOT NULL,
    host         text NOT NULL,
    started_at   integer NOT NULL,
    heartbeat_at integer NOT NULL,
    lost_at      integer
);

CREATE TABLE duties (
    name         text NOT NULL PRIMARY KEY,
    node_id      blob,
    epoch        integer NOT NULL,
    leased_until integer NOT NULL
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

-- Counts are kept by appending what each transaction changed and folding it later; their sum is exact.
CREATE TABLE tally_deltas (
    id         INTEGER PRIMARY KEY,
    span_start integer NOT NULL,
    queue      text NOT NULL,
    task_type  text NOT NULL,
    measure    text NOT NULL,
    label      text NOT NULL,
    bucket     integer NOT NULL,
    n          integer NOT NULL
);

CREATE TABLE tallies (
    span_start integer NOT NULL,
    queue      text NOT NULL,
    task_type  text NOT NULL,
    measure    text NOT NULL,
    label      text NOT NULL,
    bucket     integer NOT NULL,
    n          integer NOT NULL,
    PRIMARY KEY (span_start, queue, task_type, measure, label, bucket)
);
