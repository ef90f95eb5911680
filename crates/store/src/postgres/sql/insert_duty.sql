INSERT INTO duties (name, epoch, leased_until) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING
