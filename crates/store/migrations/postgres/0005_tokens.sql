-- Who may call: what is kept of a token, never the token itself. Its id is the part of it that is no secret, the digest
-- the SHA-256 of all of it, 64 hexadecimal digits; scopes are separated by spaces.
CREATE TABLE tokens (
    id           text COLLATE "C" PRIMARY KEY,
    digest       text NOT NULL,
    prefix       text NOT NULL,
    owner        text NOT NULL,
    tier         text,
    scopes       text NOT NULL,
    name         text NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint NOT NULL,
    last_used_at bigint,
    revoked_at   bigint
);
