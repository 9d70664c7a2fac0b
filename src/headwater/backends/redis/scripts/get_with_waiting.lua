#!lua flags=no-writes
-- Return states of entities of a partition, and which events a group has not handled.
-- KEYS: group, events, events that features could not handle, states
-- ARGV: ids of the entities
-- Returns the id of the oldest waiting entry, or false, the states and, unless there are none at all,
-- the events of each entity that features could not handle; all at one moment.
local cursor = redis.call('HGET', KEYS[1], 'cursor')
local oldest = redis.call('XRANGE', KEYS[2], cursor and '(' .. cursor or '-', '+', 'COUNT', 1)
local found = {oldest[1] and oldest[1][1] or false}
for i = 4, #KEYS do
  found[i - 2] = redis.call('GET', KEYS[i])
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  for i = 1, #ARGV do
    found[#KEYS - 2 + i] = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. ARGV[i] .. '\0', '(' .. ARGV[i] .. '\1')
  end
end
return found
