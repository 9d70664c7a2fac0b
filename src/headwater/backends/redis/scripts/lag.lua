#!lua flags=allow-oom
-- Return how far a group is behind in a partition.
-- KEYS: group, events
-- Returns the owner, the number of waiting entries, the id of the oldest, and the number of
-- committed entries.
-- shared: fields
local held = redis.call('HMGET', KEYS[1], 'owner', 'cursor', 'read')
local oldest = redis.call('XRANGE', KEYS[2], held[2] and '(' .. held[2] or '-', '+', 'COUNT', 1)
if #oldest == 0 then
  return {held[1], 0, false, held[3] or 0}
end
local waiting = redis.call('XLEN', KEYS[2])
if held[3] then
  waiting = fields(redis.call('XINFO', 'STREAM', KEYS[2]))['entries-added'] - tonumber(held[3])
end
return {held[1], waiting, oldest[1][1], held[3] or 0}
