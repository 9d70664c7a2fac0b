#!lua flags=allow-oom
-- Create the store if there is none. Workers get no partition of it before Postgres has confirmed it.
-- KEYS: meta
-- ARGV: format, partitions, id of a new store
-- Returns the format and the number of partitions of the store.
if redis.call('HEXISTS', KEYS[1], 'store') == 0 then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'partitions', ARGV[2], 'store', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'format', 'partitions')
