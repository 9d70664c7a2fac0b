#!lua flags=allow-oom
-- Shows that a worker is well, and lists all that are; one that is new is announced.
-- KEYS: workers
-- ARGV: worker ('' for one that is retired), milliseconds after which a silent one counts as dead, wake channel
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
if ARGV[1] ~= '' and redis.call('ZADD', KEYS[1], now, ARGV[1]) == 1 then
  redis.call('PUBLISH', ARGV[3], 'workers')
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
