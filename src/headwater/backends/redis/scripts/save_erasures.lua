#!lua flags=allow-oom
-- Add erasures to the ledger; the number of the last one never goes back.
-- KEYS: ledger
-- ARGV: secret, number of the last one, then for each: its number, JSON
redis.call('HSETNX', KEYS[1], 'secret', ARGV[1])
for i = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
if tonumber(redis.call('HGET', KEYS[1], 'last') or 0) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'last', ARGV[2])
end
return 1
