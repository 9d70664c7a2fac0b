#!lua flags=allow-oom
-- Forget the position of a group in a partition, and delete the events that were kept for it alone.
-- KEYS: group, lease, events, outbox, events that its features could not handle
-- ARGV: name of the group, name of our group
-- shared: order
-- shared: position
-- shared: fields
-- shared: trim

-- Dead letters stay; a redriven event that waits is lost for the group.
local cursor = redis.call('HGET', KEYS[1], 'cursor') or '0-0'
for _, member in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
  if before(cursor, string.match(member, '[^%z]*$')) then
    redis.call('ZREM', KEYS[5], member)
  end
end
redis.call('DEL', KEYS[1], KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('XGROUP', 'DESTROY', KEYS[3], ARGV[1])
end
local settled = redis.call('HGET', KEYS[4], 'events')
if settled then
  trim_done(KEYS[3], entry_id(settled), ARGV[2])
end
return 1
