-- Return the cursor of a group and the number of entries up to it, as the stream has them.
-- A new group starts at the oldest entry.
local function stream_cursor(events, name)
  redis.pcall('XGROUP', 'CREATE', events, name, '0', 'MKSTREAM')
  local cursor, lag = '0-0', false
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', events)) do
    local known = {}
    for i = 1, #group, 2 do
      known[group[i]] = group[i + 1]
    end
    if known['name'] == name then
      cursor, lag = known['last-delivered-id'], known['lag']
    end
  end
  local info = redis.call('XINFO', 'STREAM', events)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then
      return cursor, info[i + 1] - (lag or redis.call('XLEN', events))
    end
  end
end
