-- Those that are still where they were found.
UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (
    id CHAR(32) PATH '$.id', lane_from INT PATH '$.lane_from', lane_to INT PATH '$.lane_to'
)) AS moved
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(moved.id)
SET tasks.lane = moved.lane_to
WHERE tasks.lane = moved.lane_from
