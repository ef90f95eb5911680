-- Those of them that nobody has claimed, moved or is changing.
SELECT tasks.id, tasks.due_at, tasks.status, HEX(tasks.id)
FROM JSON_TABLE(?2, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(wanted.task_id)
WHERE tasks.lane IS NOT NULL AND tasks.due_at <= {now}
FOR UPDATE SKIP LOCKED
