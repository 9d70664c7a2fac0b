#!lua flags=allow-oom
-- Return the id of the last event that Postgres has taken and every group is done with ('' for none).
-- KEYS: events, outbox
-- ARGV: name of our group
-- shared: order
-- shared: position
-- shared: fields
-- shared: trim

local settled = redis.call('HGET', KEYS[2], 'events') or ''
return settled ~= '' and last_done(KEYS[1], entry_id(settled), ARGV[1]) or ''
