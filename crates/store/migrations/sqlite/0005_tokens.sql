-- Who may call: what is kept of a token, never the token itself. Its id is the part of it that is no secret, the digest
-- the SHA-256 of all of it, 64 hexadecimal digits; scopes are separated by spaces.
CREATE TABLE tokens (
    id           text NOT NULL PRIMARY KEY,
    digest       text NOT NULL,
    prefix       text NOT NULL,
    owner        text NOT NULL,
    tier         text,
    scopes       text NOT NULL,
    name         text NOT NULL,
    created_at   integer NOT NULL,
    expires_at   integer NOT NULL,
    last_used_at integer,
    revoked_at   integer
);
