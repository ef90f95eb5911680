UPDATE JSON_TABLE(?2, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN artifacts ON artifacts.task_id = UNHEX(wanted.wanted_id)
SET artifacts.expires_at = LEAST(artifacts.expires_at, {now}), artifacts.sweep_at = {now}
WHERE artifacts.cleaned_at IS NULL
