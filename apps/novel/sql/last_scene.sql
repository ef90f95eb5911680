SELECT COALESCE(MAX(number), 0) AS last FROM scenes WHERE novel_id = ?
