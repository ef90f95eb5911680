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
    INSERT INTO tally_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, queue, task_type, 'status', 'QUEUED', 0, 1);
    RETURN new_id;
END;
$$;
