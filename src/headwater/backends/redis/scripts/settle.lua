#!lua flags=allow-oom
-- Lets go of what the past has taken: changes, and events that every group is done with as well.
-- KEYS: changes, events, outbox
-- ARGV: last change taken, last event taken ('' for none), name of our own group
-- shared: order

local function trim(key, last)
  local ms, n = string.match(last, '^(%d+)-(%d+)$')
  redis.call('XTRIM', key, 'MINID', '=', ms .. '-' .. string.format('%.0f', tonumber(n) + 1))
end

if ARGV[1] ~= '' then
  trim(KEYS[1], ARGV[1])
end
if ARGV[2] == '' then
  return 1
end
local taken = redis.call('HGET', KEYS[3], 'events')
if not taken or before(taken, ARGV[2]) then
  redis.call('HSET', KEYS[3], 'events', ARGV[2])
end
local last, ours = ARGV[2], false
local groups = redis.call('EXISTS', KEYS[2]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[2]) or {}
for _, group in ipairs(groups) do
  local known = {}
  for i = 1, #group, 2 do
    known[group[i]] = group[i + 1]
  end
  ours = ours or known['name'] == ARGV[3]
  if before(known['last-delivered-id'], last) then
    last = known['last-delivered-id']
  end
end
-- Before the first worker has come, nobody is done with anything.
if ours then
  trim(KEYS[2], last)
end
return 1
