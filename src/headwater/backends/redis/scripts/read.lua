#!lua
-- Reads what follows a partition's cursor, with the states of the entities that it touches.
-- KEYS: group, events, idle
-- ARGV: lease, most entries, what the keys of entities begin with, entities by event type as JSON
-- Returns the cursor, the entries, and for each touched entity its name, id and state ('' for none);
-- nothing if the lease is void. A partition without entries is marked idle, in the same step.
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then
  return false
end
local cursor = redis.call('HGET', KEYS[1], 'cursor')
local entries = redis.call('XRANGE', KEYS[2], '(' .. cursor, '+', 'COUNT', ARGV[2])
if #entries == 0 then
  redis.call('SET', KEYS[3], 1)
  return {cursor, entries, {}}
end

local touches = cjson.decode(ARGV[4])
local states, asked, n = {}, {}, 0
for _, entry in ipairs(entries) do
  local fields = entry[2]
  local id = fields[4]
  for _, entity in ipairs(id and touches[fields[2]] or {}) do
    local name = entity .. ':' .. id
    if not asked[name] then
      asked[name] = true
      states[n + 1], states[n + 2], states[n + 3] = entity, id, redis.call('GET', ARGV[3] .. name) or ''
      n = n + 3
    end
  end
end
return {cursor, entries, states}
