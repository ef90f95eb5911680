-- In the order given: the numbers follow it.
INSERT INTO task_logs (task_id, attempt, level, message, logged_at)
SELECT task_id, attempt, level, message, {now}
FROM ROWS FROM (json_to_recordset($2::json) AS (task_id uuid, attempt integer, level text, message text))
    WITH ORDINALITY AS r(task_id, attempt, level, message, place)
ORDER BY place
