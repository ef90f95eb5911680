-- The application's own tables, beside Longhaul's. Ids are UUIDs as text; scenes are numbered through the whole novel.
CREATE TABLE novels (
    id         VARCHAR(36) NOT NULL PRIMARY KEY,
    owner      VARCHAR(255) NOT NULL,
    title      VARCHAR(255) NOT NULL,
    -- What was handed in, until it is split.
    source     TEXT NOT NULL,
    -- The task that imports it.
    task_id    VARCHAR(36) NOT NULL,
    -- The caller's word for this import: the same word is the same novel.
    import_key VARCHAR(255) NULL,
    UNIQUE (owner, import_key)
);

CREATE INDEX novels_by_owner ON novels (owner, id);

CREATE TABLE chapters (
    novel_id VARCHAR(36) NOT NULL,
    number   BIGINT NOT NULL,
    title    VARCHAR(255) NOT NULL,
    PRIMARY KEY (novel_id, number),
    FOREIGN KEY (novel_id) REFERENCES novels (id) ON DELETE CASCADE
);

CREATE TABLE scenes (
    novel_id     VARCHAR(36) NOT NULL,
    number       BIGINT NOT NULL,
    chapter      BIGINT NOT NULL,
    -- Missing until it is written from the summary.
    text         TEXT NULL,
    -- The task that wrote it; nothing for what was imported.
    text_task    VARCHAR(36) NULL,
    -- Missing until it is made from the text.
    summary      TEXT NULL,
    summary_task VARCHAR(36) NULL,
    PRIMARY KEY (novel_id, number),
    FOREIGN KEY (novel_id, chapter) REFERENCES chapters (novel_id, number) ON DELETE CASCADE
);
