-- Closes a name for a time. Of two answers "too many", the longer one counts.
--
-- KEYS: the name. ARGV: microseconds to add to the server's time, for how long, and how much longer the name is
-- remembered without requests, both in ms.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + ARGV[1]
local untl = now + ARGV[2] * 1000
local stored = redis.call('GET', KEYS[1])
if stored then
    untl = math.max(untl, cmsgpack.unpack(stored)[1])
end
local forgotten_at = untl + ARGV[3] * 1000
redis.call('SET', KEYS[1], cmsgpack.pack({ untl, 0, forgotten_at }), 'PX', math.ceil((forgotten_at - now) / 1000) + 1000)
return now
