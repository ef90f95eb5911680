-- A task that has waited too long stands before all others of its queue: in a lane of priority 10, which nobody can ask for.
-- On MariaDB the new definition of the column replaces its check; MySQL, which alone reads the comment, keeps the old one.
ALTER TABLE lanes /*!80016 DROP CHECK lanes_chk_1, */
    MODIFY priority SMALLINT NOT NULL CHECK (priority BETWEEN 1 AND 10);

-- Tasks of dead nodes that are kept for the host they ran on, until they are due for everybody.
CREATE TABLE kept_tasks (
    task_id BINARY(16) PRIMARY KEY,
    host    VARBINARY(200) NOT NULL,
    due_at  BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX kept_tasks_host ON kept_tasks (host, task_id);
