#!lua flags=allow-oom
-- Read the entries after the cursor of a partition, with the states of the entities they touch.
-- KEYS: group, events, idle
-- ARGV: lease, most entries, prefix of the keys of entities, entities by event type as JSON,
--       about how many bytes of entries, and of states
-- Returns the cursor, the entries, and the state of each entity that they touch, in the order in which
-- they first do; false if the lease is void. An entry is four items in a row: its id, and the type, the
-- entity id and the JSON of its event, or all its fields in place of the JSON if it is malformed or
-- redriven. A partition without entries is marked as idle atomically.
local held = redis.call('HMGET', KEYS[1], 'lease', 'cursor')
if held[1] ~= ARGV[1] then
  return false
end
local cursor = held[2]
local limit, most = tonumber(ARGV[2]), tonumber(ARGV[5])
local prefix, touches = ARGV[3], cjson.decode(ARGV[4])
local entries, size, found, bytes, start = {}, 0, 0, 0, '(' .. cursor
local keys, asked, needed = {}, {}, {}
-- Reading all at once would copy large entries only to discard them.
local count = 20
while found < limit and bytes < most do
  count = math.min(count, limit - found)
  local some = redis.call('XRANGE', KEYS[2], start, '+', 'COUNT', count)
  for i = 1, #some do
    local fields = some[i][2]
    local event_type, id, event = fields[2] or '', fields[4] or '', fields[6]
    if #fields == 6 and fields[1] == 't' and fields[3] == 'k' and fields[5] == 'e' then
      bytes = bytes + #event
    else
      event = fields
      for field = 1, #fields do
        bytes = bytes + #fields[field]
      end
    end
    entries[size + 1], entries[size + 2], entries[size + 3], entries[size + 4] = some[i][1], event_type, id, event
    size = size + 4
    local entities = touches[event_type]
    for j = 1, entities and #entities or 0 do
      local entity = entities[j]
      local ids = asked[entity] or {}
      asked[entity] = ids
      if not ids[id] then
        ids[id] = true
        keys[#keys + 1] = prefix .. entity .. ':' .. id
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
  return {cursor, entries, {}}
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
return {cursor, entries, states}
