INSERT INTO maintenance_leases (name, epoch, leased_until) VALUES (?1, 0, 0) ON CONFLICT DO NOTHING
