SELECT node_id, epoch, leased_until FROM duties WHERE name = ?1
