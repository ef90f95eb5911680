SELECT id FROM lanes WHERE queue = ?1 AND task_type = ?2 AND priority = ?3
