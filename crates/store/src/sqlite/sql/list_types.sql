SELECT DISTINCT task_type FROM lanes ORDER BY task_type
