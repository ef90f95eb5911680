SELECT names.name, queues.paused_at
FROM (SELECT queue AS name FROM lanes UNION SELECT name FROM queues) AS names
LEFT JOIN queues ON queues.name = names.name
ORDER BY names.name
