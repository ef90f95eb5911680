-- Bytes that mean nothing: a row is submitted with 128 of them, a claim leaves 48, and the end of a plain success none, so that neither makes
-- the row larger. Pages are full when their tasks are submitted, and the server would put one in order again, and log it as a whole, for
-- every few rows that grow in it.
ALTER TABLE tasks ADD COLUMN reserve VARBINARY(128);
-- By a second statement: of a column that is added to a table with rows, MariaDB does not store what equals its first default.
ALTER TABLE tasks ALTER COLUMN reserve
    SET DEFAULT '................................................................................................................................';
