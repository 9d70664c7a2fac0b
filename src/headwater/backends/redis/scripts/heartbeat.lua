#!lua flags=allow-oom
-- Record a heartbeat, remove workers whose heartbeat is overdue, and announce a new worker.
-- KEYS: workers
-- ARGV: worker ('' for a retired one), milliseconds until a heartbeat is overdue, wake channel,
--       milliseconds for which this worker could not reach the server (0 for none)
-- Returns the workers that are alive.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local cut_off = tonumber(ARGV[4] or 0)
local beats = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
-- Other workers may have been cut off by the same outage: the time in which no heartbeat arrived at
-- all does not count. If one arrived, only the connection of this worker was down.
cut_off = math.min(cut_off, math.max(0, now - tonumber(beats[#beats] or now)))
for i = 1, #beats, 2 do
  -- A heartbeat in the future means that the clock was set back.
  local silent = now - tonumber(beats[i + 1])
  if silent < 0 or cut_off > 0 then
    redis.call('ZADD', KEYS[1], 'XX', now - math.max(0, silent - cut_off), beats[i])
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
if ARGV[1] ~= '' and redis.call('ZADD', KEYS[1], now, ARGV[1]) == 1 then
  redis.call('PUBLISH', ARGV[3], 'workers')
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
