UPDATE duties SET leased_until = 0 WHERE node_id <> ?1
