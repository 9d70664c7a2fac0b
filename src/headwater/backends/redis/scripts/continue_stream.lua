#!lua flags=allow-oom
-- Let a stream continue after an id, also if the clock of this server is behind, and move entries to
-- its end.
-- KEYS: stream
-- ARGV: id, then ids of entries
-- shared: fields
-- shared: order
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XADD', KEYS[1], ARGV[1], '', '')
  redis.call('XDEL', KEYS[1], ARGV[1])
end
local last = fields(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id']
if before(last, ARGV[1]) then
  redis.call('XSETID', KEYS[1], ARGV[1])
end
for i = 2, #ARGV do
  local entry = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if entry then
    redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
    redis.call('XDEL', KEYS[1], ARGV[i])
  end
end
return 1
