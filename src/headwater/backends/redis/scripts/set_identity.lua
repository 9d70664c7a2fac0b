#!lua flags=allow-oom
-- Takes note of what was found out about a store, if it is still the one that is here.
-- KEYS: meta
-- ARGV: id of the store, id of its past, and what:
--   agreed    both know nobody else, so it is no longer new; that it was lost is not over with that
--   lost      the past is that of another one, so it is not new but lost
--   adopted   whatever it was before, the past is that of this one from now on
--   restored  what was lost is here again
-- Returns whether it is so.
local known = redis.call('HMGET', KEYS[1], 'store', 'past', 'lost')
local store, past, lost = known[1], known[2], known[3]
if store ~= ARGV[1] then
  return 0
end
if ARGV[3] == 'lost' then
  if lost == 'new' then
    redis.call('HSET', KEYS[1], 'lost', 'other')
  end
  return 1
end
if past and past ~= ARGV[2] and ARGV[3] ~= 'adopted' then
  return 0
end
redis.call('HSET', KEYS[1], 'past', ARGV[2])
if ARGV[3] == 'restored' or ARGV[3] == 'agreed' and lost == 'new' then
  redis.call('HDEL', KEYS[1], 'lost')
end
return 1
