-- A higher lane goes first if it is due; an equal one by its due time, then by its id. A task that was promoted stands
-- in a higher lane than its priority says.
WITH own AS MATERIALIZED (
    SELECT COALESCE((SELECT lanes.priority FROM tasks JOIN lanes ON lanes.id = tasks.lane WHERE tasks.id = ?5), ?2) AS priority
)
SELECT COUNT(*) FROM (
    SELECT tasks.id
    FROM own
    JOIN lanes ON lanes.queue = ?1 AND lanes.priority >= own.priority
    JOIN tasks ON tasks.lane = lanes.id
        AND tasks.due_at <= CASE WHEN lanes.priority > own.priority THEN ?3 ELSE ?4 END
    WHERE lanes.priority > own.priority OR tasks.due_at < ?4 OR tasks.id < ?5
    LIMIT ?6
) AS ahead
