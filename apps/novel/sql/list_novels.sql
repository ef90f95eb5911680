SELECT id, title, task_id,
    (SELECT COUNT(*) FROM chapters WHERE chapters.novel_id = novels.id) AS chapters,
    (SELECT COUNT(*) FROM scenes WHERE scenes.novel_id = novels.id) AS scenes,
    (SELECT COUNT(*) FROM scenes WHERE scenes.novel_id = novels.id AND summary IS NOT NULL) AS summaries
FROM novels
WHERE owner = ? AND id < ?
ORDER BY id DESC
LIMIT ?
