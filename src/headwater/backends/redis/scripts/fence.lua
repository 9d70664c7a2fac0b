#!lua flags=allow-oom
-- Void the lease of a partition, and refuse claims, of workers of an earlier generation.
-- KEYS: group, lease
-- ARGV: generation
if tonumber(redis.call('HGET', KEYS[1], 'generation') or 0) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
redis.call('HDEL', KEYS[1], 'lease')
-- The events of an owner that is alive are not suspect.
if redis.call('DEL', KEYS[2]) == 1 then
  redis.call('HDEL', KEYS[1], 'owner')
end
return 1
