DELETE FROM host_affinity WHERE task_id IN (SELECT unhex(value) FROM json_each(?1))
