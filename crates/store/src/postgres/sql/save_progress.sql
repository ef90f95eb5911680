-- The state is checked on the row that the id finds; IS TRUE keeps the planner from looking it up in an index.
UPDATE tasks SET progress = r.body, updated_at = greatest({now}, tasks.updated_at), version = version + 1
FROM json_to_recordset($2::json) AS r(id uuid, attempt integer, token uuid, body text)
WHERE tasks.id = r.id AND (tasks.status = 'RUNNING') IS TRUE AND tasks.attempt = r.attempt AND tasks.lease_token = r.token
