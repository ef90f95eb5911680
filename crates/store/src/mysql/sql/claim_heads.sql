-- When the first task of each lane is due, from where its tasks begin; a column for each. Whether it is due is not asked here:
-- a lane without a due task would be read to its end. With the lane as a range, and not as a value, the reading begins where it is
-- to begin, and not with the lane.
SELECT {row}(SELECT due_at FROM tasks FORCE INDEX (tasks_claim)
    WHERE lane >= ? AND lane <= ? AND due_at >= ? ORDER BY lane, due_at LIMIT 1){/row}
