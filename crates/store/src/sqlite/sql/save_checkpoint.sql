UPDATE tasks INDEXED BY sqlite_autoindex_tasks_1
SET checkpoint = r.value ->> 'body', updated_at = max({now}, updated_at), version = version + 1
FROM json_each(?2) AS r
WHERE tasks.id = unhex(r.value ->> 'id') AND tasks.status = 'RUNNING'
    AND tasks.attempt = r.value ->> 'attempt' AND tasks.lease_token = unhex(r.value ->> 'token')
