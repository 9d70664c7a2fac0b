#!lua flags=allow-oom
-- Takes a partition that no other living worker holds.
-- KEYS: group, lease, events
-- ARGV: worker, its time to live in milliseconds, name of the group
-- Returns the epoch, and 1 if an owner died and none was done since; nothing if another holds it.
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  if redis.call('PTTL', KEYS[2]) > tonumber(ARGV[2]) then
    -- The clock was set back: a holder that lives will prolong it again.
    redis.call('PEXPIRE', KEYS[2], ARGV[2])
  end
  return false
end
if redis.call('HEXISTS', KEYS[1], 'cursor') == 0 then
  -- A new group begins with the oldest entry there is, never with the next; one whose state was
  -- lost goes on where the stream says it was.
  redis.pcall('XGROUP', 'CREATE', KEYS[3], ARGV[3], '0', 'MKSTREAM')
  local cursor, lag = '0-0', false
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[3])) do
    local known = {}
    for i = 1, #group, 2 do
      known[group[i]] = group[i + 1]
    end
    if known['name'] == ARGV[3] then
      cursor, lag = known['last-delivered-id'], known['lag']
    end
  end
  local info = redis.call('XINFO', 'STREAM', KEYS[3])
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then
      local read = info[i + 1] - (lag or redis.call('XLEN', KEYS[3]))
      redis.call('HSET', KEYS[1], 'cursor', cursor, 'read', read)
    end
  end
end
-- Suspicion outlives the worker that was to clear it: it ends with the release of one that is done,
-- or when all whose deaths are suspected turn out to live.
local held = redis.call('HMGET', KEYS[1], 'owner', 'suspect')
local owner, suspect = held[1], held[2]
if owner and owner ~= ARGV[1] and not string.find(' ' .. (suspect or '') .. ' ', ' ' .. owner .. ' ', 1, true) then
  suspect = suspect and suspect .. ' ' .. owner or owner
  redis.call('HSET', KEYS[1], 'suspect', suspect)
end
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'lease', ARGV[1] .. ':' .. epoch)
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {epoch, suspect and 1 or 0}
