#!lua flags=allow-oom
-- Return how far each group is behind in a partition.
-- KEYS: events
-- Returns for each group its name, the number of waiting entries, and the id of the oldest.
-- shared: fields
local found = {}
local groups = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}
for _, reply in ipairs(groups) do
  local group = fields(reply)
  local oldest = redis.call('XRANGE', KEYS[1], '(' .. group['last-delivered-id'], '+', 'COUNT', 1)
  -- The lag is unknown if another program has deleted entries.
  local waiting = #oldest > 0 and (group['lag'] or redis.call('XLEN', KEYS[1])) or 0
  found[#found + 1] = {group['name'], waiting, #oldest > 0 and oldest[1][1]}
end
return found
