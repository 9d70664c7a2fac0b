#!lua flags=allow-oom
-- Count a run of a quarantined event before it runs.
-- KEYS: group
-- ARGV: lease, position, worker, 1 if the partition was suspect when it was claimed
-- Returns the count, 0 if the partition is no longer suspect, false if the lease is void.
local held = redis.call('HMGET', KEYS[1], 'lease', 'attempted', 'attempts', 'attempted_by', 'suspect')
if held[1] ~= ARGV[1] then
  return false
end
if ARGV[4] == '1' and not held[5] then
  return 0
end
local again = held[2] == ARGV[2]
local count = again and tonumber(held[3]) + 1 or 1
local by = again and held[4] and held[4] .. ' ' .. ARGV[3] or ARGV[3]
redis.call('HSET', KEYS[1], 'attempted', ARGV[2], 'attempts', count, 'attempted_by', by)
return count
