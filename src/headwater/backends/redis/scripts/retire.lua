#!lua flags=allow-oom
-- Remove a worker from the list and notify the others.
-- KEYS: workers
-- ARGV: worker with the id of its set, wake channel
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
  redis.call('PUBLISH', ARGV[2], 'workers')
end
return 1
