-- For the tests of the migrator: a schema that has more than one migration.
CREATE TABLE boxes (id integer NOT NULL PRIMARY KEY);
