-- The ids of accepted events: the ends of their dedup windows, and the content that each was accepted with.
-- Lua can pass only a limited number of arguments.
local some = 1000

local function forget_ids(seen, accepted, keys)
  if #keys > 0 then
    redis.call('ZREM', seen, unpack(keys))
    redis.call('HDEL', accepted, unpack(keys))
  end
end

-- A publisher whose clock is ahead must not end the windows of all others: an id is removed when it
-- is expired by the clock of the server too, and until then is expired for that publisher alone.
local function forget_expired(seen, accepted, now)
  local server_now = server_micros()
  local over = string.format('%.0f', math.min(now, server_now))
  repeat
    local keys = redis.call('ZRANGEBYSCORE', seen, '-inf', over, 'LIMIT', 0, some)
    forget_ids(seen, accepted, keys)
  until #keys < some
end

local function forget_excess(seen, accepted, most)
  local excess = redis.call('ZCARD', seen) - tonumber(most)
  while excess > 0 do
    forget_ids(seen, accepted, redis.call('ZRANGE', seen, 0, math.min(excess, some) - 1))
    excess = excess - some
  end
end

local function is_remembered(seen, key, now)
  local ends = redis.call('ZSCORE', seen, key)
  return ends and tonumber(ends) > now
end
