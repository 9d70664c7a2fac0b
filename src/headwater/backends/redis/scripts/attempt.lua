#!lua flags=allow-oom
-- Counts a run of a suspect event before it runs.
-- KEYS: group
-- ARGV: lease, position
-- Returns the count; nothing if the lease is void.
local held = redis.call('HMGET', KEYS[1], 'lease', 'attempted', 'attempts')
if held[1] ~= ARGV[1] then
  return false
end
local count = held[2] == ARGV[2] and tonumber(held[3]) + 1 or 1
redis.call('HSET', KEYS[1], 'attempted', ARGV[2], 'attempts', count)
return count
