-- Files that tasks made. The file is in the artifact store under its key; people see it when the attempt that made it has
-- its result accepted. sweep_at says when the file is to be deleted, and is empty once it is.
CREATE TABLE artifacts (
    id           uuid PRIMARY KEY,
    task_id      uuid NOT NULL,
    attempt      integer NOT NULL,
    bytes        bigint NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint NOT NULL,
    sweep_at     bigint,
    cleaned_at   bigint,
    failures     integer NOT NULL DEFAULT 0,
    artifact_key text COLLATE "C" NOT NULL,
    file_name    text COLLATE "C" NOT NULL,
    content_type text COLLATE "C" NOT NULL
);
CREATE INDEX artifacts_task ON artifacts (task_id);
CREATE INDEX artifacts_sweep ON artifacts (sweep_at) WHERE sweep_at IS NOT NULL;

CREATE VIEW v_artifacts AS
SELECT id, task_id, attempt, artifact_key, file_name, content_type, bytes, longhaul_time(created_at) AS created_at,
    longhaul_time(expires_at) AS expires_at, longhaul_time(cleaned_at) AS cleaned_at, failures
FROM artifacts;
