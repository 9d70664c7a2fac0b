#!lua flags=allow-oom
-- Mark the store as confirmed by Postgres, in all partitions, and rename it, unless it is gone.
-- KEYS: meta
-- ARGV: id of the store, its new id
-- Returns 1, or 0 if another store or none is there.
if redis.call('HGET', KEYS[1], 'store') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'store', ARGV[2], 'confirmed', 1)
redis.call('HDEL', KEYS[1], 'behind')
return 1
