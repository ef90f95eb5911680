-- Opens the names whose time is over.
--
-- KEYS: the names. ARGV: microseconds to add to the server's time.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + ARGV[1]
for _, key in ipairs(KEYS) do
    local stored = redis.call('GET', key)
    if stored and cmsgpack.unpack(stored)[1] <= now then
        redis.call('DEL', key)
    end
end
return now
