#!lua
-- Appends events to a partition, each id once within its window, and wakes whoever waits for them.
-- KEYS: events, seen, idle
-- ARGV: wake channel, partition, now, end of the dedup window (0: none), most ids to remember,
--       then for each event: id, type, entity id, JSON, only feature ('' for all)
-- Returns 1 for each event that was known, else 0.
local events, seen, idle = KEYS[1], KEYS[2], KEYS[3]
local window_end = tonumber(ARGV[4])

if window_end > 0 then
  redis.call('ZREMRANGEBYSCORE', seen, '-inf', ARGV[3])
end

local known = {}
for i = 6, #ARGV, 5 do
  local fresh = window_end == 0 or redis.call('ZADD', seen, 'NX', ARGV[4], ARGV[i]) == 1
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
