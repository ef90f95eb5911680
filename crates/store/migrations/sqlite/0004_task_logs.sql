-- What handlers say to the people who look at their tasks. A line's id is its number: it grows with each line, is never
-- given twice, and tells a reader where to go on.
CREATE TABLE task_logs (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id   blob NOT NULL,
    attempt   integer NOT NULL,
    level     text NOT NULL,
    message   text NOT NULL,
    logged_at integer NOT NULL
);
-- The id is part of every index here, so a task's lines lie in their order.
CREATE INDEX task_logs_task ON task_logs (task_id);

CREATE VIEW v_logs AS
SELECT lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id,
    id AS number, attempt, level,
    strftime('%Y-%m-%dT%H:%M:%S', logged_at / 1000000, 'unixepoch') || printf('.%06dZ', logged_at % 1000000) AS logged_at,
    message
FROM task_logs;
