#!lua
-- Append events to a partition, each id once within the dedup window, and wake its worker.
-- KEYS: events, seen, idle
-- ARGV: wake channel, partition, now, end of the dedup window (0: none), most ids to remember,
--       then for each event: id, type, entity id, JSON, only feature ('' for all)
-- Returns 1 for each duplicate, 0 for each new event.
local events, seen, idle = KEYS[1], KEYS[2], KEYS[3]
local now, window_end = tonumber(ARGV[3]), tonumber(ARGV[4])

-- A publisher whose clock is ahead must not end the windows of all others: an id is removed when it
-- is expired by the clock of the server too, and until then is expired for that publisher alone.
if window_end > 0 then
  local time = redis.call('TIME')
  local server_now = time[1] * 1000000 + time[2]
  redis.call('ZREMRANGEBYSCORE', seen, '-inf', string.format('%.0f', math.min(now, server_now)))
end

local function is_fresh(id)
  if window_end == 0 or redis.call('ZADD', seen, 'NX', ARGV[4], id) == 1 then
    return true
  end
  local over = tonumber(redis.call('ZSCORE', seen, id)) <= now
  if over then
    redis.call('ZADD', seen, ARGV[4], id)
  end
  return over
end

local known = {}
for i = 6, #ARGV, 5 do
  local fresh = is_fresh(ARGV[i])
  if fresh then
    if ARGV[i + 4] == '' then
      redis.call('XADD', events, '*', 't', ARGV[i + 1], 'k', ARGV[i + 2], 'e', ARGV[i + 3])
    else
      redis.call('XADD', events, '*', 't', ARGV[i + 1], 'k', ARGV[i + 2], 'e', ARGV[i + 3], 'o', ARGV[i + 4])
    end
  end
  known[#known + 1] = fresh and 0 or 1
end

if window_end > 0 then
  local excess = redis.call('ZCARD', seen) - tonumber(ARGV[5])
  if excess > 0 then
    redis.call('ZPOPMIN', seen, excess)
  end
end

if redis.call('DEL', idle) == 1 then
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end
return known
