#!lua flags=allow-oom
-- Return the names of the live workers of a group.
-- KEYS: workers
-- ARGV: milliseconds until a heartbeat is overdue, length of the id of a set
-- shared: live
local names = {}
for _, member in ipairs(live(KEYS[1], ARGV[1])) do
  names[#names + 1] = string.sub(member, ARGV[2] + 1)
end
return names
