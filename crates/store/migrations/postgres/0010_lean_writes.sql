-- What each write of a lone task paid for, and need not.
-- The index of the same name does it.
ALTER TABLE tasks DROP CONSTRAINT tasks_lane;

-- Lines of counts are appended, and whoever folds them has them in hand: they need no name. Replicas are told which line goes by
-- all of its columns.
ALTER TABLE tally_deltas DROP COLUMN id;
ALTER TABLE tally_deltas REPLICA IDENTITY FULL;
