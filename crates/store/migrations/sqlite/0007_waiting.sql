-- A task that has waited too long stands before all others of its queue: in a lane of priority 10, which nobody can ask for.
-- A check cannot be changed here, so the table is made anew.
CREATE TABLE narrow_lanes AS SELECT id, queue, task_type, priority FROM lanes;
DROP TABLE lanes;
CREATE TABLE lanes (
    id        INTEGER PRIMARY KEY,
    queue     text NOT NULL,
    task_type text NOT NULL,
    priority  integer NOT NULL CHECK (priority BETWEEN 1 AND 10),
    UNIQUE (queue, task_type, priority)
);
INSERT INTO lanes (id, queue, task_type, priority) SELECT id, queue, task_type, priority FROM narrow_lanes;
DROP TABLE narrow_lanes;

-- Tasks of dead nodes that are kept for the host they ran on, until they are due for everybody.
CREATE TABLE kept_tasks (
    task_id blob NOT NULL PRIMARY KEY,
    host    text NOT NULL,
    due_at  integer NOT NULL
);
CREATE INDEX kept_tasks_host ON kept_tasks (host, task_id);
