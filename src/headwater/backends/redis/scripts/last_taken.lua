#!lua flags=allow-oom
-- Check that a position is that of the last entry that Postgres took from a stream: it was settled,
-- or the stream still has the entry. Otherwise Redis or Postgres is an older copy, or another one
-- continued from the same copy.
-- KEYS: changes or events, outbox
-- ARGV: 'history' or 'events', position: id/digest, and of history /cursors ('' for none)
-- Returns '' if it is, otherwise the last position settled ('none' for none); and 1 if Postgres took
-- entries that Redis does not know, 0 if Postgres has forgotten some that it took.
-- shared: order
-- shared: position

local settled = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if settled == ARGV[2] then
  return {'', 0}
end
local id = entry_id(ARGV[2])
local entry = id and redis.call('XRANGE', KEYS[1], id, id)[1]
-- Two servers may give the same id to different entries.
if entry and position(entry) == string.match(ARGV[2], '^[^/]+/[^/]+') then
  return {'', 0}
end
local known = entry_id(settled)
return {settled ~= '' and settled or 'none', id and not (known and before(id, known)) and 1 or 0}
