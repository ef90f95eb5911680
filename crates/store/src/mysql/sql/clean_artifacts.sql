UPDATE JSON_TABLE(?2, '$[*]' COLUMNS (wanted_id CHAR(32) PATH '$')) AS wanted
STRAIGHT_JOIN artifacts ON artifacts.id = UNHEX(wanted.wanted_id)
SET artifacts.cleaned_at = {now}, artifacts.sweep_at = NULL
