#!lua
-- Write the states of entities and their changes, unless one of the states has changed meanwhile.
-- KEYS: changes, last cross-shard write that arrived from each partition, erasures,
--       then for each state: key, ids of its type
-- ARGV: number of erasures that the writer knows, changes as JSON ('' for none), the partition that
--       sends a cross-shard write ('' for none) and the id of that write, then for each state: id,
--       the state before ('' for none), the state after
-- Returns 1, or 0 if a state has changed, or 2 if an entity was erased, and nothing was written.
-- shared: order
-- shared: erasures

if is_behind(KEYS[3], ARGV[1]) then
  return 2
end
if ARGV[3] ~= '' then
  local arrived = redis.call('HGET', KEYS[2], ARGV[3]) or '0-0'
  if not before(arrived, ARGV[4]) then
    return 1
  end
end
local states = (#KEYS - 3) / 2
for i = 1, states do
  if (redis.call('GET', KEYS[2 * i + 2]) or '') ~= ARGV[3 * i + 3] then
    return 0
  end
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
end
for i = 1, states do
  redis.call('SET', KEYS[2 * i + 2], ARGV[3 * i + 4])
  if ARGV[3 * i + 3] == '' then
    redis.call('ZADD', KEYS[2 * i + 3], 0, ARGV[3 * i + 2])
  end
end
if ARGV[2] ~= '' then
  redis.call('XADD', KEYS[1], '*', 'c', ARGV[2])
end
return 1
