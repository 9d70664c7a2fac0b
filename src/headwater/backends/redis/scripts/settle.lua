#!lua flags=allow-oom
-- Delete entries that Postgres has taken: changes, and the events that every group is done with.
-- KEYS: changes, events, outbox
-- ARGV: positions of the last change and the last event taken ('' for none), name of our group
-- Returns the positions of the last change and the last event settled, which never go back.
-- shared: order
-- shared: position

local function trim(key, last)
  local ms, n = string.match(last, '^(%d+)-(%d+)$')
  redis.call('XTRIM', key, 'MINID', '=', ms .. '-' .. string.format('%.0f', tonumber(n) + 1))
end

local settled = {}
for i, kind in ipairs({'history', 'events'}) do
  settled[i] = redis.call('HGET', KEYS[3], kind) or ''
  if ARGV[i] ~= '' and (settled[i] == '' or before(entry_id(settled[i]), entry_id(ARGV[i]))) then
    redis.call('HSET', KEYS[3], kind, ARGV[i])
    settled[i] = ARGV[i]
  end
end
if ARGV[1] ~= '' then
  trim(KEYS[1], entry_id(ARGV[1]))
end
if ARGV[2] == '' then
  return settled
end
local last, ours = entry_id(ARGV[2]), false
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
-- Until the first worker has registered, our group is not done with any event.
if ours then
  trim(KEYS[2], last)
end
return settled
