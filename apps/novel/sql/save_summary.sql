UPDATE scenes SET summary = ?, summary_task = ? WHERE novel_id = ? AND number = ?
