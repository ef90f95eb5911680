UPDATE nodes SET lost_at = {now} WHERE lost_at IS NULL AND heartbeat_at <= {now} - ?2 AND id <> ?3
