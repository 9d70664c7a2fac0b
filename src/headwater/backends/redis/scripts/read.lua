#!lua flags=allow-oom
-- Read the entries after the cursor of a partition, with the states of the entities they touch.
-- KEYS: group, events, idle
-- ARGV: lease, most entries, prefix of the keys of entities, entities by event type as JSON,
--       about how many bytes of entries, and of states
-- Returns the cursor, the entries, the name and id of each touched entity, and their states;
-- false if the lease is void. An entry is four items in a row: its id, and the type, the entity id
-- and the JSON of its event, or all its fields in place of the type if it is malformed or redriven.
-- A partition without entries is marked as idle atomically.
local held = redis.call('HMGET', KEYS[1], 'lease', 'cursor')
if held[1] ~= ARGV[1] then
  return false
end
local cursor = held[2]
local limit, most = tonumber(ARGV[2]), tonumber(ARGV[5])
local prefix, touches = ARGV[3], cjson.decode(ARGV[4])
local entries, size, found, bytes, start = {}, 0, 0, 0, '(' .. cursor
local keys, touched, asked, needed = {}, {}, {}, {}
-- Reading all at once would copy large entries only to discard them.
local count = 20
while found < limit and bytes < most do
  count = math.min(count, limit - found)
  local some = redis.call('XRANGE', KEYS[2], start, '+', 'COUNT', count)
  for i = 1, #some do
    local fields = some[i][2]
    local event_type, id, event = fields[2], fields[4], fields[6]
    entries[size + 1] = some[i][1]
    if #fields == 6 and fields[1] == 't' and fields[3] == 'k' and fields[5] == 'e' then
      entries[size + 2], entries[size + 3], entries[size + 4] = event_type, id, event
      bytes = bytes + #event
    else
      entries[size + 2], entries[size + 3], entries[size + 4] = fields, '', ''
      for field = 1, #fields do
        bytes = bytes + #fields[field]
      end
    end
    size = size + 4
    local entities = id and touches[event_type]
    for j = 1, entities and #entities or 0 do
      local key = prefix .. entities[j] .. ':' .. id
      if not asked[key] then
        asked[key] = true
        keys[#keys + 1] = key
        touched[2 * #keys - 1], touched[2 * #keys] = entities[j], id
      end
    end
    needed[size / 4] = #keys
    if bytes >= most then
      break
    end
  end
  found = size / 4
  if #some < count then
    break
  end
  start = '(' .. some[#some][1]
  count = 2 * count
end
if size == 0 then
  redis.call('SET', KEYS[3], 1)
  return {cursor, entries, {}, {}}
end

local states, first = {}, 1
bytes = 0
while first <= #keys and bytes < most do
  local some = redis.call('MGET', unpack(keys, first, math.min(first + 49, #keys)))
  for i = 1, #some do
    states[first] = some[i]
    bytes = bytes + (some[i] and #some[i] or 0)
    first = first + 1
  end
end
-- Leave entries whose states did not fit for the next page.
while needed[found] >= first do
  for i = 4 * found - 3, 4 * found do
    entries[i] = nil
  end
  found = found - 1
end
for i = 2 * #keys, 2 * first - 1, -1 do
  touched[i] = nil
end
return {cursor, entries, touched, states}
