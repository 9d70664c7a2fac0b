#!lua
-- Publish a tick to a partition unless its due time or a later one was published there.
-- KEYS: ticks, events, idle
-- ARGV: wake channel, partition, feature, due, type, entity id, JSON
-- Returns the previous due time, or its own if it was not new.
local before = redis.call('HGET', KEYS[1], ARGV[3])
if before and tonumber(before) >= tonumber(ARGV[4]) then
  return ARGV[4]
end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
redis.call('XADD', KEYS[2], '*', 't', ARGV[5], 'k', ARGV[6], 'e', ARGV[7])
if redis.call('DEL', KEYS[3]) == 1 then
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end
return before
