-- A task that has waited too long stands before all others of its queue: in a lane of priority 10, which nobody can ask for.
ALTER TABLE lanes DROP CONSTRAINT lanes_priority_check,
    ADD CONSTRAINT lanes_priority_check CHECK (priority BETWEEN 1 AND 10);

-- Tasks of dead nodes that are kept for the host they ran on, until they are due for everybody.
CREATE TABLE kept_tasks (
    task_id uuid PRIMARY KEY,
    host    text COLLATE "C" NOT NULL,
    due_at  bigint NOT NULL
);
CREATE INDEX kept_tasks_host ON kept_tasks (host, task_id);
