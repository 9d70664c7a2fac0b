#!lua flags=allow-oom
-- Claim a partition that no other worker holds a lease of.
-- KEYS: group, lease, events
-- ARGV: worker, time to live of the lease in milliseconds, name of the group, generation
-- Returns the epoch, and 1 if the partition is suspect; false if another worker holds it, or a
-- worker of a later generation has fenced it.
-- shared: fields
-- shared: cursor
if tonumber(redis.call('HGET', KEYS[1], 'generation') or 0) > tonumber(ARGV[4]) then
  return false
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  if redis.call('PTTL', KEYS[2]) > tonumber(ARGV[2]) then
    -- The clock was set back: a holder that is alive will extend the lease again.
    redis.call('PEXPIRE', KEYS[2], ARGV[2])
  end
  return false
end
open_group(KEYS[1], KEYS[3], ARGV[3])
-- The list of dead owners survives the worker that inherited it: it ends with an orderly release,
-- or when all workers on it turn out to be alive.
local held = redis.call('HMGET', KEYS[1], 'owner', 'suspect')
local owner, suspect = held[1], held[2]
if owner and owner ~= ARGV[1] and not string.find(' ' .. (suspect or '') .. ' ', ' ' .. owner .. ' ', 1, true) then
  suspect = suspect and suspect .. ' ' .. owner or owner
  redis.call('HSET', KEYS[1], 'suspect', suspect)
end
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'lease', ARGV[1] .. ':' .. epoch, 'generation', ARGV[4])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {epoch, suspect and 1 or 0}
