INSERT INTO chapters (novel_id, number, title) VALUES (?, ?, ?)
