SELECT node_id, epoch, leased_until FROM maintenance_leases WHERE name = $1 FOR UPDATE
