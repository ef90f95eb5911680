INSERT INTO scenes (novel_id, number, chapter, text, summary) VALUES (?, ?, ?, ?, ?)
