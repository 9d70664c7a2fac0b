#!lua flags=allow-oom
-- Write the outcome of a batch and advance the cursor, all or nothing.
-- KEYS: group, events, changes, dead letters, cross-shard writes, outbox, erasures,
--       events that features could not handle, then those of each state; for each new entity the ids of
--       its type; for each dead letter the events that features of its group could not handle
-- ARGV: lease, cursor of the batch, its last entry, its number of entries, name of the group,
--       changes as JSON ('' for none), changes of entities on other servers as JSON ('' for none),
--       number of states, of new entities, of dead letters, of follow-ups, of entries of documents,
--       number of erasures that the writer knows, of redriven events,
--       then for each state: that of the version after the one which was read;
--       for each new entity: its id; for each redriven event: its member among
--       the events that features could not handle; for each dead letter: JSON, member of the same;
--       for each follow-up: type, entity id, JSON; for each entry of documents: JSON
-- Returns the conflict, 'lease', 'erased' or the places of the states that changed, or '' if there is none.
-- shared: erasures
-- shared: clock

local group, events, changes, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local held = redis.call('HMGET', group, 'lease', 'cursor', 'read', 'waiting')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return 'lease'
end
if is_behind(KEYS[7], ARGV[13]) then
  return 'erased'
end

local states, new = tonumber(ARGV[8]), tonumber(ARGV[9])
local letters, follow_ups, documents = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local redriven = tonumber(ARGV[14])
local first_state, first_new, first_letter = 9, 9 + states, 9 + states + new
local changed = {}
-- Lua can pass only a limited number of arguments.
for first = 0, states - 1, 1000 do
  local count = math.min(1000, states - first)
  local now = redis.call('MGET', unpack(KEYS, first_state + first, first_state + first + count - 1))
  for i = 1, count do
    local key, version = KEYS[first_state + first + i - 1], tonumber(string.sub(ARGV[14 + first + i], 1, 16))
    if tonumber(string.sub(now[i] or '0', 1, 16)) ~= version - 1 then
      changed[#changed + 1] = first + i - 1
    elseif not now[i] and redis.call('EXISTS', key) == 1 then
      return redis.error_reply('WRONGTYPE ' .. key .. ' holds something else')
    end
  end
end
if #changed > 0 then
  return changed
end

-- Keep the position of the stream's group in step; if the group is gone, create it again before
-- anything else is written.
local read = tonumber(held[3]) + tonumber(ARGV[4])
local moved = redis.pcall('XGROUP', 'SETID', events, ARGV[5], ARGV[3], 'ENTRIESREAD', read)
if moved.err then
  redis.call('XGROUP', 'CREATE', events, ARGV[5], ARGV[3], 'MKSTREAM', 'ENTRIESREAD', read)
end
local _, now = server_micros()
redis.call('HSET', group, 'cursor', ARGV[3], 'read', read, 'attempts', 0, 'committed', now)

for first = 0, states - 1, 1000 do
  local values = {}
  for i = first, math.min(first + 1000, states) - 1 do
    values[#values + 1] = KEYS[first_state + i]
    values[#values + 1] = ARGV[15 + i]
  end
  redis.call('MSET', unpack(values))
end
local at = 15 + states
for i = 0, new - 1 do
  redis.call('ZADD', KEYS[first_new + i], 0, ARGV[at + i])
end
-- With its cursor, so that Postgres knows which events are in the history that it has.
if ARGV[6] ~= '' or ARGV[7] ~= '' then
  local rows = ARGV[6] ~= '' and ARGV[6] or '[]'
  redis.call('XADD', changes, '*', 'c', rows, 'p', ARGV[3], 'g', ARGV[5])
end
if ARGV[7] ~= '' then
  redis.call('XADD', KEYS[5], '*', 'p', ARGV[7])
end
at = at + new
for i = at, at + redriven - 1 do
  redis.call('ZREM', KEYS[8], ARGV[i])
end
at = at + redriven
for i = 0, letters - 1 do
  -- An event that is handled again, because Redis was restored, may have its letter.
  if redis.call('ZADD', KEYS[first_letter + i], 0, ARGV[at + 2 * i + 1]) == 1 then
    redis.call('XADD', dead, '*', 'l', ARGV[at + 2 * i])
  end
end
at = at + 2 * letters
for i = at, at + 3 * follow_ups - 1, 3 do
  redis.call('XADD', events, '*', 't', ARGV[i], 'k', ARGV[i + 1], 'e', ARGV[i + 2])
end
at = at + 3 * follow_ups
for i = at, at + documents - 1 do
  local id = redis.call('XADD', changes, '*', 'd', ARGV[i], 't', now, 'p', ARGV[3], 'g', ARGV[5])
  redis.call('HSET', KEYS[6], 'documents', id)
end
-- The effects are written, so a missing right to PUBLISH must not make this an error.
if held[4] then
  redis.call('HDEL', group, 'waiting')
  redis.pcall('PUBLISH', held[4], group)
end
return ''
