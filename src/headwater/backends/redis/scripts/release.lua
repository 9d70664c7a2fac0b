#!lua flags=allow-oom
-- Release a partition, unless the lease is void; 'died' keeps the owner, so that it is suspect.
-- KEYS: group, lease
-- ARGV: lease, wake channel, 'done' or 'died'
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[1], 'lease')
if ARGV[3] == 'done' then
  redis.call('HDEL', KEYS[1], 'owner', 'suspect')
end
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', ARGV[2], 'workers')
return 1
