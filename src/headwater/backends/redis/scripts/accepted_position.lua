#!lua flags=allow-oom
-- Return a position before that of every event that is accepted from now on.
-- KEYS: events
-- shared: order
-- shared: fields
-- shared: clock

local before_now = string.format('%.0f', math.floor(server_micros() / 1000) - 1) .. '-18446744073709551615'
if redis.call('EXISTS', KEYS[1]) == 0 then
  return before_now
end
local last = fields(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id']
return before(before_now, last) and last or before_now
