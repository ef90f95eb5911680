-- Those that are still where they were found.
UPDATE tasks INDEXED BY sqlite_autoindex_tasks_1 SET lane = moved.lane_to
FROM (
    SELECT unhex(value ->> 'id') AS id, value ->> 'lane_from' AS lane_from, value ->> 'lane_to' AS lane_to
    FROM json_each(?1)
) AS moved
WHERE tasks.id = moved.id AND tasks.lane = moved.lane_from
