#!lua flags=allow-oom
-- Return how far each group is behind in a partition.
-- KEYS: events
-- ARGV: prefix of the keys of groups
-- Returns for each group its name, the number of waiting entries, the id of the oldest, and the
-- time of its last commit.
-- shared: fields
local found = {}
local groups = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}
for _, reply in ipairs(groups) do
  local group = fields(reply)
  local name = group['name']
  local oldest = redis.call('XRANGE', KEYS[1], '(' .. group['last-delivered-id'], '+', 'COUNT', 1)
  -- The lag is unknown if another program has deleted entries.
  local waiting = #oldest > 0 and (group['lag'] or redis.call('XLEN', KEYS[1])) or 0
  local committed = redis.call('HGET', ARGV[1] .. name, 'committed')
  found[#found + 1] = {name, waiting, #oldest > 0 and oldest[1][1], committed}
end
return found
