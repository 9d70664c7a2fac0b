-- Return the time of the server in microseconds, as a number and as a text.
local function server_micros()
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  return micros, string.format('%.0f', micros)
end
