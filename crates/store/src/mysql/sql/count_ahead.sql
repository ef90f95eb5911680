-- A higher priority goes first if it is due; an equal one by its due time, then by its id.
SELECT COUNT(*) FROM (
    SELECT tasks.id
    FROM lanes
    JOIN tasks ON tasks.lane = lanes.id
        AND tasks.due_at <= CASE WHEN lanes.priority > ?2 THEN ?3 ELSE ?4 END
    WHERE lanes.queue = ?1 AND lanes.priority >= ?2
        AND (lanes.priority > ?2 OR tasks.due_at < ?4 OR tasks.id < ?5)
    LIMIT ?6
) AS ahead
