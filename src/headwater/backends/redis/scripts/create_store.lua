#!lua flags=allow-oom
-- Founds a store where there is none: no worker is given a partition before Postgres agrees to it.
-- KEYS: meta
-- ARGV: format, partitions, the id of a new store
-- Returns format and partitions of the store that is there.
if redis.call('HEXISTS', KEYS[1], 'store') == 0 then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'partitions', ARGV[2], 'store', ARGV[3], 'lost', 'new')
end
return redis.call('HMGET', KEYS[1], 'format', 'partitions')
