UPDATE scenes SET text = ?, text_task = ? WHERE novel_id = ? AND number = ?
