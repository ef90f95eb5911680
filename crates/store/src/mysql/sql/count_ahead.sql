-- A higher priority goes first if it is due; an equal one by its due time, then by its id. The lane is written as a range:
-- by equality the whole lane would be read, with all that is due tomorrow.
SELECT COUNT(*) FROM (
    SELECT tasks.id
    FROM lanes
    STRAIGHT_JOIN tasks FORCE INDEX (tasks_claim)
    WHERE lanes.queue = ?1 AND lanes.priority >= ?2
        AND tasks.lane >= lanes.id AND tasks.lane <= lanes.id
        AND tasks.due_at <= CASE WHEN lanes.priority > ?2 THEN ?3 ELSE ?4 END
        AND (lanes.priority > ?2 OR tasks.due_at < ?4 OR tasks.id < ?5)
    LIMIT ?6
) AS ahead
