-- Everybody may claim them by now.
DELETE FROM kept_tasks WHERE due_at <= {now}
