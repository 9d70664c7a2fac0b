#!lua flags=allow-oom
-- Delete entries that Postgres has taken: changes, and the events that every group is done with.
-- KEYS: changes, events, outbox
-- ARGV: positions of the last change and the last event taken ('' for none), name of our group
-- Returns the positions of the last change and the last event settled, which never go back.
-- shared: order
-- shared: position
-- shared: fields
-- shared: trim

local settled = {}
for i, kind in ipairs({'history', 'events'}) do
  settled[i] = redis.call('HGET', KEYS[3], kind) or ''
  if ARGV[i] ~= '' and (settled[i] == '' or before(entry_id(settled[i]), entry_id(ARGV[i]))) then
    redis.call('HSET', KEYS[3], kind, ARGV[i])
    settled[i] = ARGV[i]
  end
end
if ARGV[1] ~= '' then
  trim(KEYS[1], entry_id(ARGV[1]))
end
if ARGV[2] ~= '' then
  trim_done(KEYS[2], entry_id(ARGV[2]), ARGV[3])
end
return settled
