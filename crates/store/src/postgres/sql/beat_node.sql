UPDATE nodes SET heartbeat_at = {now} WHERE id = $2 AND lost_at IS NULL
