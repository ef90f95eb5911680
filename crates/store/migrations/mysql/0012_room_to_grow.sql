-- Bytes that a row gives back as it grows: a claim and an end take their place. Without them each page is full when its tasks are
-- submitted, and the server puts it in order again for every few tasks that are claimed, and writes it to its log as a whole.
ALTER TABLE tasks ADD COLUMN reserve VARBINARY(128)
    DEFAULT '................................................................................................................................';
