DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(?1))
