-- A repeat, after an outcome that was unknown, changes nothing.
INSERT INTO nodes (id, name, host, started_at, heartbeat_at, serves) VALUES (?2, ?3, ?4, {now}, {now}, ?5)
ON DUPLICATE KEY UPDATE id = nodes.id
