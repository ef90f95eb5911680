UPDATE artifacts SET failures = failures + 1, sweep_at = {now} + ?2
WHERE cleaned_at IS NULL AND id IN (SELECT unhex(value) FROM json_each(?3))
