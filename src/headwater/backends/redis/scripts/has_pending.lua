#!lua flags=allow-oom
-- Return 1 if a partition has changes or events that were not copied to Postgres yet.
-- KEYS: changes, events, outbox
if redis.call('XLEN', KEYS[1]) > 0 then
  return 1
end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return #last > 0 and last[1][1] ~= redis.call('HGET', KEYS[3], 'events') and 1 or 0
