#!lua flags=allow-oom
-- Reads what follows a partition's cursor, with the states of the entities that it touches.
-- KEYS: group, events, idle
-- ARGV: lease, most entries, what the keys of entities begin with, entities by event type as JSON,
--       about how many bytes of entries
-- Returns the cursor, the entries, the name and id of each touched entity, and their states;
-- nothing if the lease is void. A partition without entries is marked idle, in the same step.
local held = redis.call('HMGET', KEYS[1], 'lease', 'cursor')
if held[1] ~= ARGV[1] then
  return false
end
local cursor = held[2]
local limit, most, bytes = tonumber(ARGV[2]), tonumber(ARGV[5]), 0
local entries, start = {}, '(' .. cursor
-- Asked for all at once, large entries would be copied to be thrown away.
local count = 20
while #entries < limit and bytes < most do
  count = math.min(count, limit - #entries)
  local some = redis.call('XRANGE', KEYS[2], start, '+', 'COUNT', count)
  for i = 1, #some do
    local fields = some[i][2]
    for field = 2, #fields, 2 do
      bytes = bytes + #fields[field]
    end
    entries[#entries + 1] = some[i]
    if bytes >= most then
      break
    end
  end
  if #some < count then
    break
  end
  start = '(' .. some[#some][1]
  count = 2 * count
end
if #entries == 0 then
  redis.call('SET', KEYS[3], 1)
  return {cursor, entries, {}, {}}
end

local touches = cjson.decode(ARGV[4])
local keys, touched, asked = {}, {}, {}
for _, entry in ipairs(entries) do
  local fields = entry[2]
  local entities, id = touches[fields[2]], fields[4]
  if entities and id then
    for _, entity in ipairs(entities) do
      local key = ARGV[3] .. entity .. ':' .. id
      if not asked[key] then
        asked[key] = true
        keys[#keys + 1] = key
        touched[#touched + 1] = entity
        touched[#touched + 1] = id
      end
    end
  end
end

-- As many at once as Lua hands over.
local states = {}
for first = 1, #keys, 1000 do
  local some = redis.call('MGET', unpack(keys, first, math.min(first + 999, #keys)))
  for i = 1, #some do
    states[first + i - 1] = some[i]
  end
end
return {cursor, entries, touched, states}
