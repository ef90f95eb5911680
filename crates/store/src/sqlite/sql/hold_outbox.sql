UPDATE outbox SET leased_until = {now} + ?2, tries = tries + 1 WHERE id IN (SELECT value FROM json_each(?3))
