#!lua flags=allow-oom
-- Record which partitions are older than the history in Postgres, unless the store is gone.
-- KEYS: meta
-- ARGV: id of the store, numbers of the partitions ('' for none)
-- Returns 1, or 0 if another store or none is there.
if redis.call('HGET', KEYS[1], 'store') ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'behind')
else
  redis.call('HSET', KEYS[1], 'behind', ARGV[2])
end
return 1
