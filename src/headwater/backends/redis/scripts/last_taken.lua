#!lua flags=allow-oom
-- Check that an entry is the last one that Postgres took from a stream: it was settled, or the
-- stream still has it. Otherwise Redis or Postgres is an older copy.
-- KEYS: changes or events, outbox
-- ARGV: 'history' or 'events', id of the entry ('' for none)
-- Returns '' if it is, otherwise the last entry settled ('none' for none).
local settled = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if settled == ARGV[2] or ARGV[2] ~= '' and #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) > 0 then
  return ''
end
return settled ~= '' and settled or 'none'
