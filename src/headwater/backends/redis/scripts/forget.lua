#!lua flags=allow-oom
-- Remove an entity with all its values.
-- KEYS: state, ids of its type
-- ARGV: id
-- Returns the state before, or false.
local state = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return state
