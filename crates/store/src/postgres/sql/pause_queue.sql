INSERT INTO queues (name, paused_at) VALUES ($2, {now})
ON CONFLICT (name) DO UPDATE SET paused_at = COALESCE(queues.paused_at, EXCLUDED.paused_at)
