#!lua flags=allow-oom
-- Forget the workers and declared sets of a group, unless it has live workers.
-- KEYS: workers, declared sets
-- ARGV: milliseconds until a heartbeat is overdue
-- Returns the live workers, with the ids of their sets.
-- shared: clock
-- shared: live
local workers = live(KEYS[1], ARGV[1])
if #workers == 0 then
  redis.call('DEL', KEYS[1], KEYS[2])
end
return workers
