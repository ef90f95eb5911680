-- Fails in the middle.
CREATE TABLE lids (id integer NOT NULL PRIMARY KEY);
INSERT INTO handles (id) VALUES (1);
