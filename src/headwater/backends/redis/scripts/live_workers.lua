#!lua flags=allow-oom
-- Return the names of the live workers of a group, and the milliseconds of their last heartbeats.
-- KEYS: workers
-- ARGV: milliseconds until a heartbeat is overdue, length of the id of a set
-- shared: clock
-- shared: live
local found = {}
for _, member in ipairs(live(KEYS[1], ARGV[1])) do
  found[#found + 1] = {string.sub(member, ARGV[2] + 1), redis.call('ZSCORE', KEYS[1], member)}
end
return found
