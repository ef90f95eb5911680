-- Stores a report of progress unless a newer one is stored.
--
-- KEYS: the task. ARGV: the report, whose first 30 characters are its age, and when to forget it, in ms.

if redis.call('GETRANGE', KEYS[1], 0, 29) < string.sub(ARGV[1], 1, 30) then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 0
