#!lua
-- Write the states of entities and their changes, unless one of the states has changed meanwhile.
-- KEYS: changes, last cross-shard write that arrived from each partition
-- ARGV: changes as JSON ('' for none), the partition that sends a cross-shard write ('' for none)
--       and the id of that write, then for each state: key, key of the ids, id, the state before ('' for none),
--       the state after
-- Returns 1, or 0 if a state has changed and nothing was written.
-- shared: order

if ARGV[2] ~= '' then
  local arrived = redis.call('HGET', KEYS[2], ARGV[2]) or '0-0'
  if not before(arrived, ARGV[3]) then
    return 1
  end
end
for i = 4, #ARGV, 5 do
  if (redis.call('GET', ARGV[i]) or '') ~= ARGV[i + 3] then
    return 0
  end
end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
end
for i = 4, #ARGV, 5 do
  redis.call('SET', ARGV[i], ARGV[i + 4])
  if ARGV[i + 3] == '' then
    redis.call('ZADD', ARGV[i + 1], 0, ARGV[i + 2])
  end
end
if ARGV[1] ~= '' then
  redis.call('XADD', KEYS[1], '*', 'c', ARGV[1])
end
return 1
