#!lua flags=allow-oom
-- Return the next entries of a stream, up to a number and a size, but at least one.
-- KEYS: stream
-- ARGV: last entry before them ('' for the start), most entries, most bytes, 1 for the newest first,
--       last entry or millisecond to return ('' for the end)
-- Returns the entries, and 1 if more follow.
local limit, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local range, first, last = 'XRANGE', '-', '+'
if ARGV[4] == '1' then
  range, first, last = 'XREVRANGE', '+', '-'
end
if ARGV[5] ~= '' then
  last = ARGV[5]
end
local start = ARGV[1] == '' and first or '(' .. ARGV[1]
local entries, bytes = {}, 0
-- Reading all at once would copy large entries only to discard them.
local count = 1
while #entries < limit and bytes <= most do
  count = math.min(count, limit - #entries)
  local some = redis.call(range, KEYS[1], start, last, 'COUNT', count)
  for i = 1, #some do
    local fields = some[i][2]
    for field = 2, #fields, 2 do
      bytes = bytes + #fields[field]
    end
    if bytes > most and #entries > 0 then
      break
    end
    entries[#entries + 1] = some[i]
  end
  if #some < count then
    break
  end
  start = '(' .. some[#some][1]
  count = math.min(4 * count, 100, math.max(1, math.floor((most - bytes) * #entries / bytes)))
end
if #entries == 0 then
  return {entries, 0}
end
local following = redis.call(range, KEYS[1], '(' .. entries[#entries][1], last, 'COUNT', 1)
return {entries, #following}
