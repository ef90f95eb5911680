-- Ends what has neither parent nor children to think of; the rest takes the longer way.
UPDATE tasks SET status = 'COMPLETED', result = r.result, result_url = r.result_url, error = NULL,
    expires_at = NULL, finished_at = {now}, updated_at = {now}, version = version + 1
FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[]) AS r(id, attempt, token, result, result_url)
WHERE tasks.id = r.id AND tasks.status = 'RUNNING' AND tasks.attempt = r.attempt AND tasks.lease_token = r.token
    AND tasks.parent_id IS NULL AND tasks.children_total = 0 AND NOT tasks.finish_step
RETURNING tasks.id, queue, task_type, tasks.attempt, due_at, last_attempt_at, finished_at
