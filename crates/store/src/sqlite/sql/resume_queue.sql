UPDATE queues SET paused_at = NULL WHERE name = ?1
