#!lua flags=allow-oom
-- Create a group in a partition at the position of another, unless it exists.
-- KEYS: group, the other group, events
-- ARGV: name of the group, name of the other
-- Returns the cursor of the group.
-- shared: fields
-- shared: cursor
local cursor = redis.call('HGET', KEYS[1], 'cursor')
if cursor then
  return cursor
end
local other, read = unpack(redis.call('HMGET', KEYS[2], 'cursor', 'read'))
if not other then
  other, read = stream_cursor(KEYS[3], ARGV[2])
end
redis.call('XGROUP', 'CREATE', KEYS[3], ARGV[1], other, 'MKSTREAM', 'ENTRIESREAD', read)
redis.call('HSET', KEYS[1], 'cursor', other, 'read', read)
return other
