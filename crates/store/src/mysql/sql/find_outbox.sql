SELECT id, topic, task_id, body, tries FROM outbox
WHERE leased_until <= {now} ORDER BY id LIMIT ?2 FOR UPDATE SKIP LOCKED
