UPDATE maintenance_leases SET leased_until = 0 WHERE node_id <> ?1
