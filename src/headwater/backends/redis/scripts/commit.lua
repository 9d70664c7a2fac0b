#!lua
-- Makes everything that a batch did durable together with the fact that it is done, or nothing.
-- KEYS: group, events, changes, dead letters, parcels
-- ARGV: lease, cursor of the batch, its last entry, its number of entries, name of the group,
--       changes as JSON ('' for none), changes of other servers' entities as JSON ('' for none),
--       number of states, of dead letters, of follow-ups,
--       then for each state: key, key of the ids, id, version before ('' for none), state;
--       for each dead letter: JSON; for each follow-up: type, entity id, JSON
-- Returns what is wrong: 'lease', 'version', or '' for nothing.
local group, events, changes, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local held = redis.call('HMGET', group, 'lease', 'cursor', 'read')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return 'lease'
end

local states, letters, follow_ups = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
for i = 11, 10 + 5 * states, 5 do
  if redis.call('GETRANGE', ARGV[i], 0, 15) ~= ARGV[i + 3] then
    return 'version'
  end
end

-- The group's own position shows everybody the truth; should it be gone, it is made again here,
-- before anything else is written.
local read = tonumber(held[3]) + tonumber(ARGV[4])
local moved = redis.pcall('XGROUP', 'SETID', events, ARGV[5], ARGV[3], 'ENTRIESREAD', read)
if moved.err then
  redis.call('XGROUP', 'CREATE', events, ARGV[5], ARGV[3], 'MKSTREAM', 'ENTRIESREAD', read)
end
redis.call('HSET', group, 'cursor', ARGV[3], 'read', read, 'attempts', 0)

for i = 11, 10 + 5 * states, 5 do
  redis.call('SET', ARGV[i], ARGV[i + 4])
  if ARGV[i + 3] == '' then
    redis.call('ZADD', ARGV[i + 1], 0, ARGV[i + 2])
  end
end
if ARGV[6] ~= '' then
  redis.call('XADD', changes, '*', 'c', ARGV[6])
end
if ARGV[7] ~= '' then
  redis.call('XADD', KEYS[5], '*', 'p', ARGV[7])
end
local at = 11 + 5 * states
for i = at, at + letters - 1 do
  redis.call('XADD', dead, '*', 'l', ARGV[i])
end
at = at + letters
for i = at, at + 3 * follow_ups - 1, 3 do
  redis.call('XADD', events, '*', 't', ARGV[i], 'k', ARGV[i + 1], 'e', ARGV[i + 2])
end
return ''
