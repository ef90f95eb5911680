UPDATE nodes SET lost_at = {now} WHERE lost_at IS NULL AND id <> ?2
