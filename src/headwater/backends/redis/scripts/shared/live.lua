-- Return the members of a set of workers whose heartbeat is not overdue.
local function live(workers, ttl)
  local now = math.floor(server_micros() / 1000)
  return redis.call('ZRANGEBYSCORE', workers, '(' .. string.format('%.0f', now - tonumber(ttl)), '+inf')
end
