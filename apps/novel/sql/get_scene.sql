SELECT scenes.number, scenes.chapter, scenes.text, scenes.summary, scenes.text_task, scenes.summary_task
FROM scenes
JOIN novels ON novels.id = scenes.novel_id
WHERE scenes.novel_id = ? AND scenes.number = ? AND novels.owner = ?
