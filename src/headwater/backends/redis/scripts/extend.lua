#!lua flags=allow-oom
-- Extend a lease; return 0 if it is void.
-- KEYS: group, lease
-- ARGV: lease, worker, time to live in milliseconds
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
