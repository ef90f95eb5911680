-- `written` is the number of a scene that has a text, and 0 for the others: not every database has booleans.
SELECT number, chapter, CASE WHEN text IS NULL THEN 0 ELSE number END AS written, summary
FROM scenes
WHERE novel_id = ?
ORDER BY number
