INSERT INTO duties (name, epoch, leased_until) VALUES (?1, 0, 0) ON DUPLICATE KEY UPDATE name = duties.name
