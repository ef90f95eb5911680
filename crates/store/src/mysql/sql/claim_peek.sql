-- As a range, so that the reading begins where it is to begin: see `claim_heads`.
SELECT id, due_at FROM tasks FORCE INDEX (tasks_claim)
WHERE lane >= ?2 AND lane <= ?2 AND due_at BETWEEN ?4 AND {now} ORDER BY lane, due_at, id LIMIT ?3
