SELECT source FROM novels WHERE id = ? AND owner = ?
