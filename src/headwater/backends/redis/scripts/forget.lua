#!lua flags=allow-oom
-- Remove an entity with all its values. The empty change shows, when it has reached Postgres, that an
-- older copy of this partition still has them.
-- KEYS: state, ids of its type, changes
-- ARGV: id
-- Returns the state before, or false.
local state = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[3], '*', 'c', '[]')
return state
