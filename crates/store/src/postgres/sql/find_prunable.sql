-- Only roots: a child goes with its parent. Ids above $5 are too young to have ended long ago.
SELECT {task_columns} FROM tasks
WHERE id > $4 AND id < $5 AND parent_id IS NULL
    AND finished_at <= {now} - CASE WHEN status IN ('FAILED', 'DEAD_LETTER') THEN $3::bigint ELSE $2::bigint END
    AND children_total = children_completed + children_with_errors + children_failed + children_cancelled
ORDER BY id
LIMIT $6
