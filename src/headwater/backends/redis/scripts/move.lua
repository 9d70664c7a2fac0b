#!lua flags=allow-oom
-- Add the dead letters of a partition to the stream of all partitions, each once.
-- KEYS: dead letters of all partitions, last letter moved of each
-- ARGV: partition, then for each letter: its id in the partition, JSON
-- shared: order

local moved = redis.call('HGET', KEYS[2], ARGV[1]) or '0-0'
for i = 2, #ARGV, 2 do
  if before(moved, ARGV[i]) then
    redis.call('XADD', KEYS[1], '*', 'letter', ARGV[i + 1])
    moved = ARGV[i]
  end
end
redis.call('HSET', KEYS[2], ARGV[1], moved)
return moved
