UPDATE maintenance_leases SET node_id = ?2, epoch = ?3, leased_until = ?4 WHERE name = ?1
