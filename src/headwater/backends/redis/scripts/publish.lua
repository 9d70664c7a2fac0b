#!lua
-- Append events to a partition, each id once within the dedup window, and wake its worker.
-- KEYS: events, ends of the dedup windows by event, content of the events by event, idle, erasures,
--       for one feature only: the events that features of its group could not handle
-- ARGV: wake channel, partition, now, end of the dedup window (0: none), most events to remember,
--       number of erasures that the writer knows, 1 to return positions,
--       then for each event: its key among the remembered ones, content, type, entity id, JSON,
--       only group and feature ('' for all, or a group without a feature)
-- Returns for each event 0 or its position if it is new, otherwise the content with which its id was accepted;
-- nothing if an entity was erased and no event was appended.
-- shared: erasures
-- shared: clock
-- shared: dedup

if is_behind(KEYS[5], ARGV[6]) then
  return false
end
local events, seen, accepted, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, window_end = tonumber(ARGV[3]), tonumber(ARGV[4])

if window_end > 0 then
  forget_expired(seen, accepted, now)
end

local function content_of_first(key, content)
  if window_end == 0 then
    return 0
  end
  if redis.call('HSETNX', accepted, key, content) == 0 then
    if is_remembered(seen, key, now) then
      -- Of a record of a log without its offset.
      return string.match(redis.call('HGET', accepted, key), '^%d*(.*)$')
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
      local feature = string.match(ARGV[i + 5], '[^/]+$')
      if feature then
        redis.call('ZADD', KEYS[6], 0, ARGV[i + 3] .. '\0' .. feature .. '\0' .. id)
      end
    end
  end
  firsts[#firsts + 1] = first
end

if window_end > 0 then
  forget_excess(seen, accepted, ARGV[5])
end

if redis.call('DEL', idle) == 1 then
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end
return firsts
