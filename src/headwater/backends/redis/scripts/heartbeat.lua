#!lua flags=allow-oom
-- Record a heartbeat, remove workers whose heartbeat is overdue, and choose the current set of
-- features: among the sets of the listed workers that no other contains, the one whose code was
-- first seen last; of one code, the set that was.
-- KEYS: workers (a member is the id of a set and a name), declared sets
-- ARGV: worker ('' for a retired one), milliseconds until a heartbeat is overdue, wake channel,
--       milliseconds for which this worker could not reach the server (0 for none),
--       id of its set, its set as JSON, its code
-- Returns the live workers of the current set, its generation, the generation below which leases
-- are void, the id of the current set, and that set.
-- shared: clock
local now = math.floor(server_micros() / 1000)
local cut_off = tonumber(ARGV[4] or 0)
local beats = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
-- Other workers may have been cut off by the same outage: the time in which no heartbeat arrived at
-- all does not count. If one arrived, only the connection of this worker was down.
cut_off = math.min(cut_off, math.max(0, now - tonumber(beats[#beats] or now)))
for i = 1, #beats, 2 do
  -- A heartbeat in the future means that the clock was set back.
  local silent = now - tonumber(beats[i + 1])
  if silent < 0 or cut_off > 0 then
    redis.call('ZADD', KEYS[1], 'XX', now - math.max(0, silent - cut_off), beats[i])
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
-- A set is stored as the number of the first set of its code, its own number, its code, and JSON.
local PATTERN = '^(%d+) (%d+) (%S+) (.*)$'
if redis.call('HEXISTS', KEYS[2], ARGV[5]) == 0 then
  local number = redis.call('HINCRBY', KEYS[2], 'number', 1)
  local first = number
  for _, set in ipairs(redis.call('HVALS', KEYS[2])) do
    local earlier, _, code = string.match(set, PATTERN)
    if code == ARGV[7] then
      first = math.min(first, tonumber(earlier))
    end
  end
  redis.call('HSET', KEYS[2], ARGV[5], table.concat({first, number, ARGV[7], ARGV[6]}, ' '))
end
if ARGV[1] ~= '' and redis.call('ZADD', KEYS[1], now, ARGV[5] .. ARGV[1]) == 1 then
  redis.call('PUBLISH', ARGV[3], 'workers')
end

local names, ids = {}, {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local id = string.sub(member, 1, #ARGV[5])
  if not names[id] then
    names[id] = {}
    ids[#ids + 1] = id
  end
  table.insert(names[id], string.sub(member, #ARGV[5] + 1))
end

local known = {}
local function declared(id)
  if not known[id] then
    local first, number, _, json = string.match(redis.call('HGET', KEYS[2], id) or '', PATTERN)
    local set = {first = tonumber(first or 0), number = tonumber(number or 0), size = 0, has = {}}
    set.json = json or '[]'
    for _, feature in ipairs(cjson.decode(set.json)) do
      set.size, set.has[feature] = set.size + 1, true
    end
    known[id] = set
  end
  return known[id]
end

local function contains(a, b)
  if a.size <= b.size then
    return false
  end
  for feature in pairs(b.has) do
    if not a.has[feature] then
      return false
    end
  end
  return true
end

local function is_later(a, b)
  return a.first > b.first or (a.first == b.first and a.number > b.number)
end

-- A set is remembered after its last worker has gone, so that a restart does not make it newer.
if redis.call('HLEN', KEYS[2]) > 24 then
  for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
    local last = tonumber(redis.call('HGET', KEYS[2], 'number'))
    if #id == #ARGV[5] and not names[id] and declared(id).number <= last - 16 then
      redis.call('HDEL', KEYS[2], id)
    end
  end
end

local held = redis.call('HMGET', KEYS[2], 'current', 'generation', 'fence')
local before, generation, fence = held[1], tonumber(held[2] or 0), tonumber(held[3] or 0)
local current = #ids == 1 and ids[1]
for i = 1, #ids > 1 and #ids or 0 do
  local set, contained = declared(ids[i]), false
  for j = 1, #ids do
    contained = contained or contains(declared(ids[j]), set)
  end
  if not contained and (not current or is_later(set, declared(current))) then
    current = ids[i]
  end
end
current = current or before or ARGV[5]

if current ~= before then
  -- Later than any before, also if the previous ones were lost with their server.
  generation = math.max(generation + 1, now)
  local new, old = declared(current), declared(before or '')
  -- Workers of the set before may still hold leases. They may keep them if the new set is current
  -- only because they are stopping.
  if names[before] or contains(new, old) or (is_later(new, old) and not contains(old, new)) then
    fence = generation
  end
  redis.call('HSET', KEYS[2], 'current', current, 'generation', generation, 'fence', fence)
  redis.call('PUBLISH', ARGV[3], 'workers')
end
return {names[current] or {}, generation, fence, current, declared(current).json}
