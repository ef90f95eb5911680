-- Those that are still where they were found, and that nobody is changing.
WITH picked AS MATERIALIZED (
    SELECT tasks.id, moved.lane_to
    FROM json_to_recordset($1::json) AS moved(id uuid, lane_from integer, lane_to integer)
    JOIN tasks ON tasks.id = moved.id AND (tasks.lane = moved.lane_from) IS TRUE
    FOR UPDATE OF tasks SKIP LOCKED
)
UPDATE tasks SET lane = picked.lane_to FROM picked WHERE tasks.id = picked.id
