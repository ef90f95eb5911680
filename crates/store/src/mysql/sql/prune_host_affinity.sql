-- Everybody may claim them by now.
DELETE FROM host_affinity WHERE due_at <= {now}
