SELECT id, name, host, started_at, heartbeat_at, lost_at, serves FROM nodes ORDER BY started_at, id
