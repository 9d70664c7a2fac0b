#!lua flags=allow-oom
-- Create the store if there is none. Workers get no partition of it before Postgres has confirmed it.
-- One of an earlier format is of the present format from now on, which processes of an earlier version
-- of Headwater refuse.
-- KEYS: meta
-- ARGV: format, partitions, id of a new store, the earliest format that need not be converted
-- Returns the format and the number of partitions of the store.
if redis.call('HEXISTS', KEYS[1], 'store') == 0 then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'partitions', ARGV[2], 'store', ARGV[3])
end
local format = tonumber(redis.call('HGET', KEYS[1], 'format') or 0)
if format >= tonumber(ARGV[4]) and format < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'format', ARGV[1])
end
return redis.call('HMGET', KEYS[1], 'format', 'partitions')
