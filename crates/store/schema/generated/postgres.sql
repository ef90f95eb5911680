-- Made by `make generate` from a migrated database. Do not edit.

TABLE artifacts (
    id uuid NOT NULL,
    task_id uuid NOT NULL,
    attempt integer NOT NULL,
    bytes bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    sweep_at bigint,
    cleaned_at bigint,
    failures integer NOT NULL DEFAULT 0,
    artifact_key text NOT NULL,
    file_name text NOT NULL,
    content_type text NOT NULL
);

TABLE attempts (
    task_id uuid NOT NULL,
    attempt integer NOT NULL,
    outcome text NOT NULL,
    node_id uuid,
    host text,
    started_at bigint,
    ended_at bigint,
    error text
);

TABLE count_deltas (
    span_start bigint NOT NULL,
    queue text NOT NULL,
    task_type text NOT NULL,
    measure text NOT NULL,
    label text NOT NULL,
    bucket integer NOT NULL,
    n bigint NOT NULL
) REPLICA IDENTITY FULL;

TABLE host_affinity (
    task_id uuid NOT NULL,
    host text NOT NULL,
    due_at bigint NOT NULL
);

TABLE idempotency_keys (
    owner text NOT NULL,
    idempotency_key text NOT NULL,
    digest text NOT NULL,
    task_id uuid NOT NULL,
    expires_at bigint NOT NULL
);

TABLE lanes (
    id integer NOT NULL,
    queue text NOT NULL,
    task_type text NOT NULL,
    priority smallint NOT NULL
);

TABLE maintenance_leases (
    name text NOT NULL,
    node_id uuid,
    epoch bigint NOT NULL,
    leased_until bigint NOT NULL
);

TABLE nodes (
    id uuid NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    started_at bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    lost_at bigint,
    serves text
);

TABLE outbox (
    id bigint NOT NULL,
    topic text NOT NULL,
    task_id uuid NOT NULL,
    body text NOT NULL,
    created_at bigint NOT NULL,
    leased_until bigint NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0
);

TABLE queues (
    name text NOT NULL,
    paused_at bigint
);

TABLE task_counts (
    span_start bigint NOT NULL,
    queue text NOT NULL,
    task_type text NOT NULL,
    measure text NOT NULL,
    label text NOT NULL,
    bucket integer NOT NULL,
    n bigint NOT NULL
);

TABLE task_logs (
    id bigint NOT NULL,
    task_id uuid NOT NULL,
    logged_at bigint NOT NULL,
    attempt integer NOT NULL,
    level text NOT NULL,
    message text NOT NULL
);

TABLE tasks (
    id uuid NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    due_at bigint NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 5,
    retry_count integer NOT NULL DEFAULT 0,
    snooze_count integer NOT NULL DEFAULT 0,
    crash_count integer NOT NULL DEFAULT 0,
    children_total integer NOT NULL DEFAULT 0,
    children_completed integer NOT NULL DEFAULT 0,
    children_with_errors integer NOT NULL DEFAULT 0,
    children_failed integer NOT NULL DEFAULT 0,
    children_cancelled integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 1,
    finish_step boolean NOT NULL DEFAULT false,
    status text NOT NULL DEFAULT 'QUEUED'::text,
    phase text NOT NULL DEFAULT 'run'::text,
    owner text NOT NULL,
    task_type text NOT NULL,
    queue text NOT NULL,
    parameters text NOT NULL,
    parent_id uuid,
    started_at bigint,
    last_attempt_at bigint,
    finished_at bigint,
    deadline_at bigint,
    expires_at bigint,
    timeout_ms bigint,
    lane integer,
    tier text,
    task_key text,
    lease_token uuid,
    node_id uuid,
    host text,
    retry_policy text,
    checkpoint text,
    progress text,
    result text,
    result_url text,
    error text,
    memo text,
    correlation_id text,
    trace_context text,
    artifact_expires_at bigint,
    artifact_state text
);

TABLE tokens (
    id text NOT NULL,
    digest text NOT NULL,
    prefix text NOT NULL,
    owner text NOT NULL,
    tier text,
    scopes text NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    last_used_at bigint,
    revoked_at bigint
);

CONSTRAINT artifacts.artifacts_pkey PRIMARY KEY (id);

CONSTRAINT attempts.attempts_pkey PRIMARY KEY (task_id, attempt);

CONSTRAINT host_affinity.host_affinity_pkey PRIMARY KEY (task_id);

CONSTRAINT idempotency_keys.idempotency_keys_pkey PRIMARY KEY (owner, idempotency_key);

CONSTRAINT lanes.lanes_pkey PRIMARY KEY (id);

CONSTRAINT lanes.lanes_priority_check CHECK (((priority >= 1) AND (priority <= 10)));

CONSTRAINT lanes.lanes_queue_task_type_priority_key UNIQUE (queue, task_type, priority);

CONSTRAINT maintenance_leases.maintenance_leases_pkey PRIMARY KEY (name);

CONSTRAINT nodes.nodes_pkey PRIMARY KEY (id);

CONSTRAINT outbox.outbox_pkey PRIMARY KEY (id);

CONSTRAINT queues.queues_pkey PRIMARY KEY (name);

CONSTRAINT task_counts.task_counts_pkey PRIMARY KEY (span_start, queue, task_type, measure, label, bucket);

CONSTRAINT task_logs.task_logs_pkey PRIMARY KEY (id);

CONSTRAINT tasks.tasks_pkey PRIMARY KEY (id);

CONSTRAINT tokens.tokens_pkey PRIMARY KEY (id);

CREATE UNIQUE INDEX artifacts_pkey ON public.artifacts USING btree (id);

CREATE INDEX artifacts_sweep ON public.artifacts USING btree (sweep_at) WHERE (sweep_at IS NOT NULL);

CREATE INDEX artifacts_task ON public.artifacts USING btree (task_id);

CREATE UNIQUE INDEX attempts_pkey ON public.attempts USING btree (task_id, attempt);

CREATE INDEX host_affinity_host ON public.host_affinity USING btree (host, task_id);

CREATE UNIQUE INDEX host_affinity_pkey ON public.host_affinity USING btree (task_id);

CREATE INDEX idempotency_keys_expires ON public.idempotency_keys USING btree (expires_at);

CREATE UNIQUE INDEX idempotency_keys_pkey ON public.idempotency_keys USING btree (owner, idempotency_key);

CREATE UNIQUE INDEX lanes_pkey ON public.lanes USING btree (id);

CREATE UNIQUE INDEX lanes_queue_task_type_priority_key ON public.lanes USING btree (queue, task_type, priority);

CREATE UNIQUE INDEX maintenance_leases_pkey ON public.maintenance_leases USING btree (name);

CREATE UNIQUE INDEX nodes_pkey ON public.nodes USING btree (id);

CREATE UNIQUE INDEX outbox_pkey ON public.outbox USING btree (id);

CREATE UNIQUE INDEX queues_pkey ON public.queues USING btree (name);

CREATE UNIQUE INDEX task_counts_pkey ON public.task_counts USING btree (span_start, queue, task_type, measure, label, bucket);

CREATE UNIQUE INDEX task_logs_pkey ON public.task_logs USING btree (id);

CREATE INDEX task_logs_task ON public.task_logs USING btree (task_id, id);

CREATE INDEX tasks_claim ON public.tasks USING btree (lane, due_at, id) WHERE (lane IS NOT NULL);

CREATE INDEX tasks_expires ON public.tasks USING btree (expires_at, id) WHERE (expires_at IS NOT NULL);

CREATE INDEX tasks_key ON public.tasks USING btree (task_key, id) WHERE (task_key IS NOT NULL);

CREATE INDEX tasks_lane ON public.tasks USING btree (longhaul_refuse_lane(id, status, lane)) WHERE ((lane IS NOT NULL) <> (status = ANY (ARRAY['QUEUED'::text, 'RETRYING'::text])));

CREATE INDEX tasks_owner_status ON public.tasks USING btree (owner, status, id) WHERE (status <> 'RUNNING'::text);

CREATE INDEX tasks_parent ON public.tasks USING btree (parent_id, id) WHERE (parent_id IS NOT NULL);

CREATE UNIQUE INDEX tasks_pkey ON public.tasks USING btree (id);

CREATE INDEX tasks_status_type ON public.tasks USING btree (status, task_type, id) WHERE (status <> 'COMPLETED'::text);

CREATE UNIQUE INDEX tokens_pkey ON public.tokens USING btree (id);

VIEW v_artifacts AS
 SELECT artifacts.id,
    artifacts.task_id,
    artifacts.attempt,
    artifacts.artifact_key,
    artifacts.file_name,
    artifacts.content_type,
    artifacts.bytes,
    longhaul_time(artifacts.created_at) AS created_at,
    longhaul_time(artifacts.expires_at) AS expires_at,
    longhaul_time(artifacts.cleaned_at) AS cleaned_at,
    artifacts.failures
   FROM artifacts;

VIEW v_attempts AS
 SELECT attempts.task_id,
    attempts.attempt,
    attempts.outcome,
    attempts.node_id,
    attempts.host,
    longhaul_time(attempts.started_at) AS started_at,
    longhaul_time(attempts.ended_at) AS ended_at,
    attempts.error
   FROM attempts
UNION ALL
 SELECT t.id AS task_id,
    t.attempt,
        CASE t.status
            WHEN 'RUNNING'::text THEN 'running'::text
            WHEN 'CANCELLED'::text THEN 'cancelled'::text
            WHEN 'COMPLETED'::text THEN 'completed'::text
            WHEN 'COMPLETED_WITH_ERRORS'::text THEN 'completed'::text
            ELSE 'failed'::text
        END AS outcome,
    t.node_id,
    t.host,
    longhaul_time(t.last_attempt_at) AS started_at,
    longhaul_time(t.finished_at) AS ended_at,
    t.error
   FROM tasks t
  WHERE ((t.attempt > 0) AND (t.status <> ALL (ARRAY['QUEUED'::text, 'RETRYING'::text, 'WAITING'::text])) AND (NOT (EXISTS ( SELECT 1
           FROM attempts a
          WHERE ((a.task_id = t.id) AND (a.attempt = t.attempt))))));

VIEW v_counts AS
 SELECT entries.queue,
    entries.task_type,
    entries.label AS status,
    (sum(entries.n))::bigint AS tasks
   FROM ( SELECT task_counts.queue,
            task_counts.task_type,
            task_counts.label,
            task_counts.n
           FROM task_counts
          WHERE ((task_counts.measure = 'status'::text) AND (task_counts.span_start = 0))
        UNION ALL
         SELECT count_deltas.queue,
            count_deltas.task_type,
            count_deltas.label,
            count_deltas.n
           FROM count_deltas
          WHERE ((count_deltas.measure = 'status'::text) AND (count_deltas.span_start = 0))) entries
  GROUP BY entries.queue, entries.task_type, entries.label
 HAVING (sum(entries.n) <> (0)::numeric);

VIEW v_dead_letters AS
 SELECT tasks.id AS task_id,
    tasks.owner,
    tasks.task_type,
    tasks.task_key,
    tasks.queue,
    tasks.status,
    tasks.attempt,
    tasks.retry_count,
    tasks.crash_count,
    longhaul_time(tasks.finished_at) AS finished_at,
    tasks.error,
    tasks.parameters
   FROM tasks
  WHERE (tasks.status = ANY (ARRAY['FAILED'::text, 'DEAD_LETTER'::text]));

VIEW v_logs AS
 SELECT task_logs.task_id,
    task_logs.id AS number,
    task_logs.attempt,
    task_logs.level,
    longhaul_time(task_logs.logged_at) AS logged_at,
    task_logs.message
   FROM task_logs;

VIEW v_statistics AS
 SELECT longhaul_time(entries.span_start) AS hour,
    entries.queue,
    entries.task_type,
    entries.label AS status,
    entries.measure,
    entries.bucket,
        CASE
            WHEN (entries.measure = ANY (ARRAY['wait'::text, 'run'::text])) THEN round((power((2)::numeric, (((entries.bucket)::numeric + 0.5) / 4.0)) / 1000.0), 3)
            ELSE NULL::numeric
        END AS milliseconds,
    (sum(entries.n))::bigint AS tasks
   FROM ( SELECT task_counts.span_start,
            task_counts.queue,
            task_counts.task_type,
            task_counts.measure,
            task_counts.label,
            task_counts.bucket,
            task_counts.n
           FROM task_counts
          WHERE (task_counts.span_start > 0)
        UNION ALL
         SELECT count_deltas.span_start,
            count_deltas.queue,
            count_deltas.task_type,
            count_deltas.measure,
            count_deltas.label,
            count_deltas.bucket,
            count_deltas.n
           FROM count_deltas
          WHERE (count_deltas.span_start > 0)) entries
  GROUP BY entries.span_start, entries.queue, entries.task_type, entries.measure, entries.label, entries.bucket
 HAVING (sum(entries.n) <> (0)::numeric);

VIEW v_tasks AS
 SELECT tasks.id AS task_id,
    tasks.parent_id AS parent_task_id,
    tasks.owner,
    tasks.tier,
    tasks.task_type,
    tasks.task_key,
    tasks.queue,
    tasks.priority,
    tasks.status,
    tasks.phase,
    tasks.attempt,
    tasks.max_attempts,
    tasks.retry_count,
    tasks.snooze_count,
    tasks.crash_count,
    tasks.version,
    longhaul_time(tasks.created_at) AS created_at,
    longhaul_time(tasks.updated_at) AS updated_at,
    longhaul_time(tasks.due_at) AS due_at,
    longhaul_time(tasks.started_at) AS started_at,
    longhaul_time(tasks.last_attempt_at) AS last_attempt_at,
    longhaul_time(tasks.finished_at) AS finished_at,
    longhaul_time(tasks.deadline_at) AS deadline_at,
    tasks.timeout_ms,
    tasks.node_id,
    tasks.host,
    tasks.children_total,
    tasks.children_completed,
    tasks.children_with_errors,
    tasks.children_failed,
    tasks.children_cancelled,
    tasks.parameters,
    tasks.checkpoint,
    tasks.progress,
    tasks.result,
    tasks.result_url,
    tasks.error,
    tasks.memo,
    tasks.correlation_id
   FROM tasks;

CREATE OR REPLACE FUNCTION public.longhaul_now()
 RETURNS bigint
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN ((EXTRACT(epoch FROM statement_timestamp()) * (1000000)::numeric))::bigint
;

CREATE OR REPLACE FUNCTION public.longhaul_refuse_lane(id uuid, status text, lane integer)
 RETURNS boolean
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'tasks', CONSTRAINT = 'tasks_lane',
        MESSAGE = format('the constraint tasks_lane refuses task %s: %s with the lane %s', id, status, COALESCE(lane::text, 'NULL')),
        DETAIL = 'A task has a lane if it is QUEUED or RETRYING, and else none.',
        HINT = 'Submit with longhaul_submit(); cancel, retry and reschedule through the API or the command line.';
END
$function$
;

CREATE OR REPLACE FUNCTION public.longhaul_submit(task_type text, parameters json, owner text, queue text DEFAULT 'free_default'::text, priority integer DEFAULT 1, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, task_key text DEFAULT NULL::text, max_attempts integer DEFAULT 5, correlation_id text DEFAULT NULL::text)
 RETURNS uuid
 LANGUAGE plpgsql
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION public.longhaul_time(micros bigint)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ('1970-01-01 00:00:00+00'::timestamp with time zone + ((micros)::double precision * '00:00:00.000001'::interval))
;

CREATE OR REPLACE FUNCTION public.longhaul_uuid7()
 RETURNS uuid
 LANGUAGE sql
 PARALLEL SAFE
RETURN (((lpad(to_hex((longhaul_now() / 1000)), 12, '0'::text) || '7'::text) || substr(replace((gen_random_uuid())::text, '-'::text, ''::text), 14)))::uuid
;
