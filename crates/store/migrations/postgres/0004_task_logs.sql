-- What handlers say to the people who look at their tasks. A line's id is its number: it grows with each line, is never
-- given twice, and tells a reader where to go on.
CREATE TABLE task_logs (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id   uuid NOT NULL,
    logged_at bigint NOT NULL,
    attempt   integer NOT NULL,
    level     text COLLATE "C" NOT NULL,
    message   text NOT NULL
);
CREATE INDEX task_logs_task ON task_logs (task_id, id);

CREATE VIEW v_logs AS
SELECT task_id, id AS number, attempt, level, longhaul_time(logged_at) AS logged_at, message
FROM task_logs;
