-- A higher lane goes first if it is due; an equal one by its due time, then by its id. A task that was promoted stands
-- in a higher lane than its priority says. The lane is written as a range: by equality the whole lane would be read, with all
-- that is due tomorrow.
SELECT COUNT(*) FROM (
    SELECT tasks.id
    FROM (
        SELECT COALESCE((SELECT lanes.priority FROM tasks JOIN lanes ON lanes.id = tasks.lane WHERE tasks.id = ?5), ?2) AS priority
    ) AS own
    STRAIGHT_JOIN lanes ON lanes.queue = ?1 AND lanes.priority >= own.priority
    STRAIGHT_JOIN tasks FORCE INDEX (tasks_claim)
    WHERE tasks.lane >= lanes.id AND tasks.lane <= lanes.id
        AND tasks.due_at <= CASE WHEN lanes.priority > own.priority THEN ?3 ELSE ?4 END
        AND (lanes.priority > own.priority OR tasks.due_at < ?4 OR tasks.id < ?5)
    LIMIT ?6
) AS ahead
