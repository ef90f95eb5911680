-- Files that tasks made. The file is in the artifact store under its key; people see it when the attempt that made it has
-- its result accepted. sweep_at says when the file is to be deleted, and is empty once it is.
CREATE TABLE artifacts (
    id           blob NOT NULL PRIMARY KEY,
    task_id      blob NOT NULL,
    attempt      integer NOT NULL,
    artifact_key text NOT NULL,
    file_name    text NOT NULL,
    content_type text NOT NULL,
    bytes        integer NOT NULL,
    created_at   integer NOT NULL,
    expires_at   integer NOT NULL,
    sweep_at     integer,
    cleaned_at   integer,
    failures     integer NOT NULL DEFAULT 0
);
CREATE INDEX artifacts_task ON artifacts (task_id);
CREATE INDEX artifacts_sweep ON artifacts (sweep_at) WHERE sweep_at IS NOT NULL;

CREATE VIEW v_artifacts AS
SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS id,
    lower(substr(hex(task_id), 1, 8) || '-' || substr(hex(task_id), 9, 4) || '-' || substr(hex(task_id), 13, 4) || '-' || substr(hex(task_id), 17, 4) || '-' || substr(hex(task_id), 21)) AS task_id,
    attempt, artifact_key, file_name, content_type, bytes,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', expires_at / 1000000, 'unixepoch') || printf('.%06dZ', expires_at % 1000000) AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', cleaned_at / 1000000, 'unixepoch') || printf('.%06dZ', cleaned_at % 1000000) AS cleaned_at,
    failures
FROM artifacts;
