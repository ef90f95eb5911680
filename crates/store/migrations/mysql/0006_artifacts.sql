-- Files that tasks made. The file is in the artifact store under its key; people see it when the attempt that made it has
-- its result accepted. sweep_at says when the file is to be deleted, and is empty once it is.
CREATE TABLE artifacts (
    id           BINARY(16) PRIMARY KEY,
    task_id      BINARY(16) NOT NULL,
    attempt      INT NOT NULL,
    artifact_key VARCHAR(200) NOT NULL,
    file_name    VARCHAR(255) NOT NULL,
    content_type VARCHAR(200) NOT NULL,
    bytes        BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    sweep_at     BIGINT,
    cleaned_at   BIGINT,
    failures     INT NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX artifacts_task ON artifacts (task_id);
CREATE INDEX artifacts_sweep ON artifacts (sweep_at);

CREATE VIEW v_artifacts AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(task_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS task_id,
    attempt, artifact_key, file_name, content_type, bytes,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL created_at MICROSECOND AS created_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL expires_at MICROSECOND AS expires_at,
    TIMESTAMP '1970-01-01 00:00:00' + INTERVAL cleaned_at MICROSECOND AS cleaned_at, failures
FROM artifacts;
