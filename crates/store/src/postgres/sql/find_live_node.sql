SELECT id FROM nodes WHERE id = $1 AND lost_at IS NULL
