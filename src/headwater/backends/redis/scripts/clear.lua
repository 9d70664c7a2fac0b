#!lua flags=allow-oom
-- Remove a worker from the dead owners of a partition, with its runs: it was only cut off.
-- KEYS: group
-- ARGV: worker
local held = redis.call('HMGET', KEYS[1], 'suspect', 'attempted_by', 'attempts')

local function others(names)
  local rest, count = {}, 0
  for name in string.gmatch(names or '', '%S+') do
    if name == ARGV[1] then
      count = count + 1
    else
      rest[#rest + 1] = name
    end
  end
  return table.concat(rest, ' '), count
end

local suspect, suspected = others(held[1])
if suspected == 0 then
  return 0
end
local by, runs = others(held[2])
local attempts = math.max(0, tonumber(held[3] or 0) - runs)
redis.call('HSET', KEYS[1], 'suspect', suspect, 'attempted_by', by, 'attempts', attempts)
if suspect == '' then
  redis.call('HDEL', KEYS[1], 'suspect')
end
return 1
