#!lua flags=allow-oom
-- Let a group continue after an event.
-- KEYS: group, events
-- ARGV: name of the group, id of the event
-- shared: fields
-- shared: cursor
redis.pcall('XGROUP', 'CREATE', KEYS[2], ARGV[1], ARGV[2], 'MKSTREAM')
redis.call('XGROUP', 'SETID', KEYS[2], ARGV[1], ARGV[2])
local _, read = stream_cursor(KEYS[2], ARGV[1])
redis.call('HSET', KEYS[1], 'cursor', ARGV[2], 'read', read, 'attempts', 0)
return 1
