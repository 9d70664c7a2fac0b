#!lua flags=allow-oom
-- Remove dead letters: all, or none if one is unknown.
-- KEYS: dead letters of all partitions
-- ARGV: their ids
-- Returns the first unknown id, or ''.
for i = 1, #ARGV do
  if #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
    return ARGV[i]
  end
end
for i = 1, #ARGV do
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return ''
