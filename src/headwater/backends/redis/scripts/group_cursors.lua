#!lua flags=allow-oom
-- Return the groups of a partition by turns with their cursors, as the stream has them.
-- KEYS: events
-- shared: fields
local found = {}
if redis.call('EXISTS', KEYS[1]) == 1 then
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = fields(reply)
    found[#found + 1] = group['name']
    found[#found + 1] = group['last-delivered-id']
  end
end
return found
