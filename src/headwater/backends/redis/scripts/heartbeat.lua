#!lua flags=allow-oom
-- Shows that a worker is well, and lists all that are; one that is new is announced.
-- KEYS: workers
-- ARGV: worker ('' for one that is retired), milliseconds after which a silent one counts as dead, wake channel,
--       for how many milliseconds this one could not reach us (0: it was well all the time)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local cut_off = tonumber(ARGV[4] or 0)
local heard = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
-- Others may have been cut off by the same: that time is held against nobody, as far as nobody at
-- all was heard in it. Where one was, only the line of this worker is bad.
cut_off = math.min(cut_off, math.max(0, now - tonumber(heard[#heard] or now)))
for i = 1, #heard, 2 do
  -- Nobody was heard later than now, but for a clock that was set back.
  local silent = now - tonumber(heard[i + 1])
  if silent < 0 or cut_off > 0 then
    redis.call('ZADD', KEYS[1], 'XX', now - math.max(0, silent - cut_off), heard[i])
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
if ARGV[1] ~= '' and redis.call('ZADD', KEYS[1], now, ARGV[1]) == 1 then
  redis.call('PUBLISH', ARGV[3], 'workers')
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
