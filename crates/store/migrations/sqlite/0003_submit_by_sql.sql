-- Submit from any language, inside the caller's own transaction:
--   INSERT INTO submit_task (task_type, parameters, owner) VALUES ('send_mail', '{"to":"a@b.c"}', 'u-1');
-- A caller that wants to know the id gives it: task_id, a UUID as text. run_at is microseconds since 1970.

CREATE VIEW submit_task AS
SELECT '' AS task_id, task_type, parameters, owner, queue, priority, due_at AS run_at, task_key, max_attempts,
    correlation_id
FROM tasks WHERE false;

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

    INSERT INTO tally_deltas (span_start, queue, task_type, measure, label, bucket, n)
    VALUES (0, COALESCE(NEW.queue, 'free_default'), NEW.task_type, 'status', 'QUEUED', 0, 1);
END;
