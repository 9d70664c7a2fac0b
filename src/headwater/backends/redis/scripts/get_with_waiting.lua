#!lua flags=no-writes
-- Return states of entities of a partition, and the oldest entry that a group has not committed.
-- KEYS: group, events, states
-- Returns the id of the oldest waiting entry, or false, and the states, at one moment.
local cursor = redis.call('HGET', KEYS[1], 'cursor')
local oldest = redis.call('XRANGE', KEYS[2], cursor and '(' .. cursor or '-', '+', 'COUNT', 1)
local found = {oldest[1] and oldest[1][1] or false}
for i = 3, #KEYS do
  found[i - 1] = redis.call('GET', KEYS[i])
end
return found
