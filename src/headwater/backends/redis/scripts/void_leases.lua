#!lua flags=allow-oom
-- Void the leases of a partition in all groups.
-- KEYS: events
-- ARGV: prefix of the keys of groups, prefix of the keys of their leases
-- shared: fields
local groups = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}
for _, reply in ipairs(groups) do
  local name = fields(reply)['name']
  redis.call('HDEL', ARGV[1] .. name, 'lease')
  -- The events of an owner that is alive are not suspect.
  if redis.call('DEL', ARGV[2] .. name) == 1 then
    redis.call('HDEL', ARGV[1] .. name, 'owner')
  end
end
return 1
