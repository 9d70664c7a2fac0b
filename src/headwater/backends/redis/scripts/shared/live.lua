-- Return the members of a set of workers whose heartbeat is not overdue.
local function live(workers, ttl)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  return redis.call('ZRANGEBYSCORE', workers, '(' .. string.format('%.0f', now - tonumber(ttl)), '+inf')
end
