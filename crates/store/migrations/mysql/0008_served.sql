-- What a node runs, as it said when it started: JSON with its queues, types and slots.
ALTER TABLE nodes ADD COLUMN serves MEDIUMTEXT;
