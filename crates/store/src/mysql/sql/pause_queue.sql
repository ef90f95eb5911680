INSERT INTO queues (name, paused_at) VALUES (?2, {now})
ON DUPLICATE KEY UPDATE paused_at = COALESCE(queues.paused_at, VALUES(paused_at))
