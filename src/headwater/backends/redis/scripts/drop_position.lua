#!lua flags=allow-oom
-- Forget the position of a group in a partition, and delete the events that were kept for it alone.
-- KEYS: group, lease, events, outbox
-- ARGV: name of the group, name of our group
-- shared: order
-- shared: position
-- shared: trim

redis.call('DEL', KEYS[1], KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('XGROUP', 'DESTROY', KEYS[3], ARGV[1])
end
local settled = redis.call('HGET', KEYS[4], 'events')
if settled then
  trim_done(KEYS[3], entry_id(settled), ARGV[2])
end
return 1
