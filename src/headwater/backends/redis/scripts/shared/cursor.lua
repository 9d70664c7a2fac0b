-- Return the cursor of a group and the number of entries up to it, as the stream has them.
-- A new group starts at the oldest entry.
local function stream_cursor(events, name)
  redis.pcall('XGROUP', 'CREATE', events, name, '0', 'MKSTREAM')
  local cursor, lag = '0-0', false
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', events)) do
    local group = fields(reply)
    if group['name'] == name then
      cursor, lag = group['last-delivered-id'], group['lag']
    end
  end
  local added = fields(redis.call('XINFO', 'STREAM', events))['entries-added']
  return cursor, added - (lag or redis.call('XLEN', events))
end

-- Give a group its place in a partition, unless it has one. A group whose state was lost continues at
-- the position that the stream has for it.
local function open_group(group, events, name)
  if redis.call('HEXISTS', group, 'cursor') == 0 then
    local cursor, read = stream_cursor(events, name)
    redis.call('HSET', group, 'cursor', cursor, 'read', read)
  end
end
