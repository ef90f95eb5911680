SELECT tasks.id, tasks.owner, tasks.task_type, tasks.queue, tasks.priority, tasks.retry_count, tasks.created_at, tasks.due_at,
    tasks.correlation_id, tasks.trace_context
FROM JSON_TABLE(?1, '$[*]' COLUMNS (task_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN tasks ON tasks.id = UNHEX(wanted.task_id)
WHERE tasks.lane IS NOT NULL
