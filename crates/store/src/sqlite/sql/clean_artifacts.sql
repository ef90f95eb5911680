UPDATE artifacts SET cleaned_at = {now}, sweep_at = NULL WHERE id IN (SELECT unhex(value) FROM json_each(?2))
