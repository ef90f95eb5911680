-- Books one permit in all limits of a key, for the first time that suits all of them, or in none.
--
-- The rules are those of local/rate_limiter.rs and local/calendar.rs; a test compares the two. There is one difference:
-- a permit for the first free time goes into the flow at once, because no later permit can come before it. Only permits
-- that another limit has delayed are remembered one by one, so that a long queue of
-- callers costs no more than a short one.
--
-- KEYS: where the key and its provider are parked (ARGV[3] of them), then the calendars of the limits.
-- ARGV: microseconds to add to the server's time, the longest wait in ms, the number of names, how long a probe may stay
-- silent and how soon to ask again during a probe, both in ms, and the most permits that are remembered one by one. Then
-- for each limit its permits, the interval between two of them and the tolerance, each in whole microseconds and a
-- remainder in fractions of one permit. Numbers here are exact up to 2^53; the scaled times of the Rust code exceed it.
--
-- Answers {1, wait in ms, now, the booked time} or {0, when to ask again in ms, now, 0}; times in microseconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + ARGV[1]
local max_wait_ms, names = tonumber(ARGV[2]), tonumber(ARGV[3])
local silence_ms, retry_ms, most_gaps = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local function ms_until(at)
    return math.ceil((at - now) / 1000)
end

-- Parked names ------------------------------------------------------------------------------------

local parked, closed_ms = {}, nil
for name = 1, names do
    local stored = redis.call('GET', KEYS[name])
    if stored then
        local untl, probe_lost_at, forgotten_at = unpack(cmsgpack.unpack(stored))
        local is_over = (probe_lost_at > 0 and probe_lost_at or forgotten_at) <= now
        if not is_over then
            local closed = nil
            if now < untl then
                closed = ms_until(untl)
            elseif probe_lost_at > 0 then
                closed = math.min(ms_until(probe_lost_at), retry_ms)
            end
            if closed then
                closed_ms = math.max(closed_ms or 0, closed)
            end
            parked[#parked + 1] = { key = KEYS[name], untl = untl, forgotten_at = forgotten_at }
        end
    end
end
if closed_ms then
    return { 0, closed_ms, now, 0 }
end

-- Times as whole microseconds and a remainder ----------------------------------------------------

local function plus(aw, ar, bw, br, permits)
    local w, r = aw + bw, ar + br
    if r >= permits then
        return w + 1, r - permits
    end
    return w, r
end

local function minus(aw, ar, bw, br, permits)
    local w, r = aw - bw, ar - br
    if r < 0 then
        return w - 1, r + permits
    end
    return w, r
end

local function is_less(aw, ar, bw, br)
    return aw < bw or (aw == bw and ar < br)
end

-- One calendar ------------------------------------------------------------------------------------

-- Where the flow stands after a permit at `at`.
local function even_after(c, w, r, at)
    if w < at then
        w, r = at, 0
    end
    return plus(w, r, c.interval_w, c.interval_r, c.permits)
end

-- The first microsecond at which a permit may pass when the flow stands there.
local function first_after(c, w, r)
    local at, rest = minus(w, r, c.tolerance_w, c.tolerance_r, c.permits)
    return rest > 0 and at + 1 or at
end

-- Where the flow stands before each remembered permit, and by how much it may be pushed there.
local function look_ahead(c)
    local count = #c.gaps
    c.evens_w, c.evens_r, c.slack_w, c.slack_r = { c.w }, { c.r }, {}, {}
    for index = 1, count do
        c.evens_w[index + 1], c.evens_r[index + 1] = even_after(c, c.evens_w[index], c.evens_r[index], c.gaps[index])
    end
    local after_w, after_r = math.huge, 0
    for index = count, 1, -1 do
        local lead_w, lead_r = minus(c.gaps[index], 0, c.evens_w[index], c.evens_r[index], c.permits)
        local own_slack_w, own_slack_r = plus(lead_w, lead_r, c.tolerance_w, c.tolerance_r, c.permits)
        if lead_w < 0 then
            lead_w, lead_r = 0, 0
        end
        after_w, after_r = plus(lead_w, lead_r, after_w, after_r, c.permits)
        if is_less(own_slack_w, own_slack_r, after_w, after_r) then
            after_w, after_r = own_slack_w, own_slack_r
        end
        c.slack_w[index], c.slack_r[index] = after_w, after_r
    end
end

-- The first time from `from` on. A gap that is too tight now is so for every later time and is not tried again.
local function earliest(c, from)
    local count = #c.gaps
    while true do
        local index = c.index
        local even_w, even_r = c.evens_w[index], c.evens_r[index]
        local candidate = math.max(from, c.floor, index > 1 and c.gaps[index - 1] or 0, first_after(c, even_w, even_r))
        if index > count then
            return candidate
        end
        if candidate <= c.gaps[index] then
            local push_w, push_r = even_after(c, even_w, even_r, candidate)
            push_w, push_r = minus(push_w, push_r, even_w, even_r, c.permits)
            if not is_less(c.slack_w[index], c.slack_r[index], push_w, push_r) then
                return candidate
            end
        end
        c.index = index + 1
    end
end

local function load(key, first_argument)
    local c = { key = key, w = 0, r = 0, floor = 0, gaps = {}, index = 1 }
    c.permits, c.interval_w, c.interval_r, c.tolerance_w, c.tolerance_r =
        tonumber(ARGV[first_argument]), tonumber(ARGV[first_argument + 1]), tonumber(ARGV[first_argument + 2]),
        tonumber(ARGV[first_argument + 3]), tonumber(ARGV[first_argument + 4])
    local stored = redis.call('GET', key)
    if stored then
        local list = cmsgpack.unpack(stored)
        c.w, c.r, c.floor = list[1], list[2], list[4]
        if list[3] ~= c.permits and c.r > 0 then
            -- The rules have changed, and with them the unit of the remainder.
            c.w, c.r = c.w + 1, 0
        end
        for index = 5, #list do
            local at = list[index]
            if at <= now then
                c.w, c.r = even_after(c, c.w, c.r, at)
                c.floor = at
            else
                c.gaps[#c.gaps + 1] = at
            end
        end
    end
    look_ahead(c)
    c.soonest = earliest(c, now)
    c.tight = c.index - 1
    return c
end

-- Permits before the first gap with room become part of the flow, and so does a permit in that gap.
local function book(c, at)
    local in_place = at == c.soonest
    local list = { c.evens_w[c.tight + 1], c.evens_r[c.tight + 1], c.permits, c.floor }
    if c.tight > 0 then
        list[4] = c.gaps[c.tight]
    end
    if in_place then
        list[1], list[2] = even_after(c, list[1], list[2], at)
        list[4] = at
    end
    local last = list[1]
    for index = c.tight + 1, #c.gaps do
        local gap = c.gaps[index]
        if not in_place and at < gap then
            list[#list + 1] = at
            in_place = true
        end
        list[#list + 1] = gap
    end
    if not in_place then
        list[#list + 1] = at
    end
    if #list > 4 then
        -- The last one moves the flow as well.
        last = math.max(last, list[#list]) + c.interval_w * (#list - 3)
    end
    -- The key expires a second after its last permit has lost its effect.
    redis.call('SET', c.key, cmsgpack.pack(list), 'PX', ms_until(math.max(last, now)) + 1000)
end

-- All calendars -----------------------------------------------------------------------------------

local calendars = {}
for index = names + 1, #KEYS do
    calendars[#calendars + 1] = load(KEYS[index], 7 + (index - names - 1) * 5)
end

local at = now
while true do
    local later = at
    for _, c in ipairs(calendars) do
        later = earliest(c, later)
    end
    if later == at then
        break
    end
    at = later
end

local wait_ms = ms_until(at)
for _, c in ipairs(calendars) do
    if at ~= c.soonest and #c.gaps - c.tight >= most_gaps then
        return { 0, math.max(wait_ms, 1), now, 0 }
    end
end
if wait_ms > max_wait_ms then
    return { 0, wait_ms - max_wait_ms, now, 0 }
end
for _, c in ipairs(calendars) do
    book(c, at)
end
-- The first permit after a name's time is its probe.
local lost_at = now + (wait_ms + silence_ms) * 1000
for _, p in ipairs(parked) do
    redis.call('SET', p.key, cmsgpack.pack({ p.untl, lost_at, p.forgotten_at }), 'PX', ms_until(lost_at) + 1000)
end
return { 1, wait_ms, now, at }
