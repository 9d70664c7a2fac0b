local function trim(key, last)
  local ms, n = string.match(last, '^(%d+)-(%d+)$')
  redis.call('XTRIM', key, 'MINID', '=', ms .. '-' .. string.format('%.0f', tonumber(n) + 1))
end

-- Return the last event up to an id that every group is done with, or nil. Until the first worker of
-- our group has claimed the partition, it is not done with any event.
local function last_done(events, last, our_group)
  local ours = false
  local groups = redis.call('EXISTS', events) == 1 and redis.call('XINFO', 'GROUPS', events) or {}
  for _, reply in ipairs(groups) do
    local group = fields(reply)
    ours = ours or group['name'] == our_group
    if before(group['last-delivered-id'], last) then
      last = group['last-delivered-id']
    end
  end
  return ours and last or nil
end

-- Delete the events up to an id that every group is done with.
local function trim_done(events, last, our_group)
  local done = last_done(events, last, our_group)
  if done then
    trim(events, done)
  end
end
