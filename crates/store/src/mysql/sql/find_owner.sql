SELECT owner FROM tasks WHERE id = ?1
