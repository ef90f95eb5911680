INSERT INTO maintenance_leases (name, epoch, leased_until) VALUES (?1, 0, 0) ON DUPLICATE KEY UPDATE name = maintenance_leases.name
