-- Who may call: what is kept of a token, never the token itself. Its id is the part of it that is no secret, the digest
-- the SHA-256 of all of it, 64 hexadecimal digits; scopes are separated by spaces.
CREATE TABLE tokens (
    id           VARBINARY(100) PRIMARY KEY,
    digest       CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    prefix       VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    owner        VARBINARY(200) NOT NULL,
    tier         VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin,
    scopes       TEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name         VARCHAR(200) NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at   BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
