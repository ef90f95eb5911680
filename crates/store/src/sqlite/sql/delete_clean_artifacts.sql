DELETE FROM artifacts WHERE cleaned_at IS NOT NULL AND task_id IN (SELECT unhex(value) FROM json_each(?1))
