DELETE FROM novels WHERE id = ? AND owner = ?
