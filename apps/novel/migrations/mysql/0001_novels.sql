-- The application's own tables, beside Longhaul's. Ids are UUIDs as text; scenes are numbered through the whole novel.
CREATE TABLE novels (
    id         VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    owner      VARCHAR(255) COLLATE utf8mb4_bin NOT NULL,
    title      VARCHAR(255) COLLATE utf8mb4_bin NOT NULL,
    -- What was handed in, until it is split.
    source     LONGTEXT NOT NULL,
    -- The task that imports it.
    task_id    VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- The caller's word for this import: the same word is the same novel.
    import_key VARCHAR(255) COLLATE utf8mb4_bin NULL,
    UNIQUE (owner, import_key)
) DEFAULT CHARACTER SET utf8mb4;

CREATE INDEX novels_by_owner ON novels (owner, id);

CREATE TABLE chapters (
    novel_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    number   BIGINT NOT NULL,
    title    VARCHAR(255) COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (novel_id, number),
    FOREIGN KEY (novel_id) REFERENCES novels (id) ON DELETE CASCADE
) DEFAULT CHARACTER SET utf8mb4;

CREATE TABLE scenes (
    novel_id     VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    number       BIGINT NOT NULL,
    chapter      BIGINT NOT NULL,
    -- Missing until it is written from the summary.
    text         LONGTEXT NULL,
    -- The task that wrote it; nothing for what was imported.
    text_task    VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL,
    -- Missing until it is made from the text.
    summary      LONGTEXT NULL,
    summary_task VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL,
    PRIMARY KEY (novel_id, number),
    FOREIGN KEY (novel_id, chapter) REFERENCES chapters (novel_id, number) ON DELETE CASCADE
) DEFAULT CHARACTER SET utf8mb4;
