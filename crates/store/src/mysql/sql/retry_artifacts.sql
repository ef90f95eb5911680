UPDATE JSON_TABLE(?3, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN artifacts ON artifacts.id = UNHEX(wanted.wanted_id)
SET artifacts.failures = artifacts.failures + 1, artifacts.sweep_at = {now} + ?2
WHERE artifacts.cleaned_at IS NULL
