-- IS TRUE keeps the planner from looking the rows up in the index of claims instead of by their ids.
SELECT tasks.id, tasks.owner, tasks.task_type, tasks.queue, tasks.priority, tasks.retry_count, tasks.created_at, tasks.due_at,
    tasks.correlation_id, tasks.trace_context
FROM tasks
WHERE id IN (SELECT value::uuid FROM json_array_elements_text($1::json)) AND (lane IS NOT NULL) IS TRUE
