SELECT number, title FROM chapters WHERE novel_id = ? ORDER BY number
