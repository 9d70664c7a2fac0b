#!lua
-- Replace the catalog of features, unless it has changed meanwhile.
-- KEYS: catalog
-- ARGV: revision of the catalog that is replaced (0 for none), revision and JSON of the new one
-- Returns 1, or 0 if the catalog has another revision.
if (redis.call('HGET', KEYS[1], 'revision') or '0') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'revision', ARGV[2], 'state', ARGV[3])
return 1
