UPDATE artifacts SET expires_at = min(expires_at, {now}), sweep_at = {now}
WHERE cleaned_at IS NULL AND task_id IN (SELECT unhex(value) FROM json_each(?2))
