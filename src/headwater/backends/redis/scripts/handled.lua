#!lua flags=allow-oom
-- Return which events a group has committed, and ask its next commit for a message if some wait.
-- KEYS: group, events, events that features could not handle
-- ARGV: channel of the message ('' for none), then for each event: entity id, its position ('' for
--       any event of the entity), the position to be committed ('' for the last of the partition)
-- Returns for each event the position to be committed, and the series that could not handle it, or
-- false while it waits.
-- shared: order

local cursor = redis.call('HGET', KEYS[1], 'cursor') or '0-0'
local found, waits = {}, false
for i = 2, #ARGV, 3 do
  local id, own, position = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if position == '' then
    local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
    position = last[1] and last[1][1] or '0-0'
  end
  local failed = false
  if before(cursor, position) then
    waits = true
  else
    failed = {}
    for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], '[' .. id .. '\0', '(' .. id .. '\1')) do
      local series, at = string.match(member, '^[^%z]*%z([^%z]*)%z(.*)$')
      if own == '' or own == at then
        failed[#failed + 1] = series
      end
    end
  end
  found[#found + 1] = {position, failed}
end
if waits and ARGV[1] ~= '' then
  redis.call('HSET', KEYS[1], 'waiting', ARGV[1])
end
return found
