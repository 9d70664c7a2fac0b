#!lua flags=allow-oom
-- Return a position before that of every event that is accepted from now on.
-- KEYS: events
-- shared: order

local time = redis.call('TIME')
local before_now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - 1) .. '-18446744073709551615'
if redis.call('EXISTS', KEYS[1]) == 0 then
  return before_now
end
local info = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' and before(before_now, info[i + 1]) then
    return info[i + 1]
  end
end
return before_now
