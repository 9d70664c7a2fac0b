#!lua flags=allow-oom
-- Void the lease of a group.
-- KEYS: group, lease
redis.call('HDEL', KEYS[1], 'lease')
-- The events of an owner that is alive are not suspect.
if redis.call('DEL', KEYS[2]) == 1 then
  redis.call('HDEL', KEYS[1], 'owner')
end
return 1
