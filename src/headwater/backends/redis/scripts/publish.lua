#!lua
-- Append events to a partition, each id once within the dedup window, and wake its worker.
-- KEYS: events, ends of the dedup windows by event, content of the events by event, idle, erasures,
--       for one feature only: the events that features of its group could not handle
-- ARGV: wake channel, partition, now, end of the dedup window (0: none), most events to remember,
--       number of erasures that the writer knows, 1 to return positions,
--       then for each event: its key among the remembered ones, content, type, entity id, JSON,
--       only group and feature ('' for all)
-- Returns for each event 0 or its position if it is new, otherwise the content with which its id was accepted;
-- nothing if an entity was erased and no event was appended.
-- shared: erasures
-- shared: clock

if is_behind(KEYS[5], ARGV[6]) then
  return false
end
local events, seen, accepted, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, window_end = tonumber(ARGV[3]), tonumber(ARGV[4])
-- Lua can pass only a limited number of arguments.
local some = 1000

local function forget(keys)
  if #keys > 0 then
    redis.call('ZREM', seen, unpack(keys))
    redis.call('HDEL', accepted, unpack(keys))
  end
end

-- A publisher whose clock is ahead must not end the windows of all others: an id is removed when it
-- is expired by the clock of the server too, and until then is expired for that publisher alone.
if window_end > 0 then
  local server_now = server_micros()
  local over = string.format('%.0f', math.min(now, server_now))
  repeat
    local keys = redis.call('ZRANGEBYSCORE', seen, '-inf', over, 'LIMIT', 0, some)
    forget(keys)
  until #keys < some
end

local function content_of_first(key, content)
  if window_end == 0 then
    return 0
  end
  if redis.call('HSETNX', accepted, key, content) == 0 then
    local ends = redis.call('ZSCORE', seen, key)
    if ends and tonumber(ends) > now then
      return redis.call('HGET', accepted, key)
    end
    redis.call('HSET', accepted, key, content)
  end
  redis.call('ZADD', seen, ARGV[4], key)
  return 0
end

local firsts = {}
for i = 8, #ARGV, 6 do
  local first = content_of_first(ARGV[i], ARGV[i + 1])
  if first == 0 then
    if ARGV[i + 5] == '' then
      local id = redis.call('XADD', events, '*', 't', ARGV[i + 2], 'k', ARGV[i + 3], 'e', ARGV[i + 4])
      first = ARGV[7] == '1' and id or 0
    else
      local id = redis.call('XADD', events, '*', 't', ARGV[i + 2], 'k', ARGV[i + 3], 'e', ARGV[i + 4], 'o', ARGV[i + 5])
      redis.call('ZADD', KEYS[6], 0, ARGV[i + 3] .. '\0' .. string.match(ARGV[i + 5], '[^/]*$') .. '\0' .. id)
    end
  end
  firsts[#firsts + 1] = first
end

if window_end > 0 then
  local excess = redis.call('ZCARD', seen) - tonumber(ARGV[5])
  while excess > 0 do
    forget(redis.call('ZRANGE', seen, 0, math.min(excess, some) - 1))
    excess = excess - some
  end
end

if redis.call('DEL', idle) == 1 then
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end
return firsts
