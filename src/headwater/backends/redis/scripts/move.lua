#!lua flags=allow-oom
-- Adds a partition's dead letters to the one stream of all of them, each once.
-- KEYS: dead letters of all partitions, how far each was moved
-- ARGV: partition, then for each letter: its id in the partition, JSON
local function parts(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

local moved = redis.call('HGET', KEYS[2], ARGV[1]) or '0-0'
local ms, n = parts(moved)
for i = 2, #ARGV, 2 do
  local own_ms, own_n = parts(ARGV[i])
  if own_ms > ms or (own_ms == ms and own_n > n) then
    redis.call('XADD', KEYS[1], '*', 'letter', ARGV[i + 1])
    moved, ms, n = ARGV[i], own_ms, own_n
  end
end
redis.call('HSET', KEYS[2], ARGV[1], moved)
return moved
