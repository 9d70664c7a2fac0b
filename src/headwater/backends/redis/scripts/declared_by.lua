#!lua flags=allow-oom
-- Return each live worker of a group and the set of features that it declares, by turns.
-- KEYS: workers, declared sets
-- ARGV: milliseconds until a heartbeat is overdue, length of the id of a set
-- shared: clock
-- shared: live
local found = {}
for _, member in ipairs(live(KEYS[1], ARGV[1])) do
  local set = redis.call('HGET', KEYS[2], string.sub(member, 1, ARGV[2])) or ''
  found[#found + 1] = string.sub(member, ARGV[2] + 1)
  found[#found + 1] = string.match(set, '(%[.*)$') or '[]'
end
return found
