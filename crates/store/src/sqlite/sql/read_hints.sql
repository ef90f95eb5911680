SELECT tasks.id, tasks.owner, tasks.task_type, tasks.queue, tasks.priority, tasks.retry_count, tasks.created_at, tasks.due_at,
    tasks.correlation_id, tasks.trace_context
FROM tasks INDEXED BY sqlite_autoindex_tasks_1
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND lane IS NOT NULL
