#!lua
-- Append the records of a log that follow those which were appended before, each once and in order.
-- Records that come too early, or for which there is no room, only claim their ids.
-- KEYS: events, ends of the dedup windows by event, content of the events by event, idle, erasures,
--       feed, outbox, positions of awaited records
-- ARGV: wake channel, partition, now, end of the dedup window (0: none), most events to remember,
--       number of erasures that the writer knows, most entries that may wait,
--       channel of the message that awaited records are appended, name of our group, first offset and
--       the one after the last of a range, then for each record of it: offset, its key among the remembered
--       events, content ('' if it is not remembered), type, entity id, JSON, 1 if it is awaited
-- Returns the offset after the last appended record (-1 if the feed has not begun, or stopped), 1 if there is no
-- room, and for each record: its position if it was appended and is awaited, the content with which
-- another record has its id, or 0; nothing if an entity was erased and no record was appended.
-- shared: erasures
-- shared: clock
-- shared: dedup
-- shared: order
-- shared: position
-- shared: fields
-- shared: trim

if is_behind(KEYS[5], ARGV[6]) then
  return false
end
local events, seen, accepted, idle, feed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local now, window_end = tonumber(ARGV[3]), tonumber(ARGV[4])
local first, after = tonumber(ARGV[10]), tonumber(ARGV[11])
local state = redis.call('HMGET', feed, 'offset', 'mark', 'log', 'found')
-- Offsets of another log that was found in place of ours mean other records.
local is_other = state[3] and state[4] and state[3] ~= state[4]
local offset = is_other and -1 or tonumber(state[1] or -1)
local is_full = redis.call('XLEN', events) >= tonumber(ARGV[7])
local settled = is_full and redis.call('HGET', KEYS[7], 'events')
if settled then
  -- Events that were handled after Postgres took them stay until it takes others.
  trim_done(events, entry_id(settled), ARGV[9])
  is_full = redis.call('XLEN', events) >= tonumber(ARGV[7])
end
local is_next = first <= offset and offset < after and not is_full

forget_expired(seen, accepted, now)

-- An id belongs to the first record that claimed it, so a publisher is told the truth about a
-- record that is appended later. But a record whose publisher could not claim it, as Redis was away,
-- takes it at its turn from a repetition after it: what was published between the two comes later.
local function content_of_owner(own, key, content, is_turn)
  local known = redis.call('HGET', accepted, key)
  if known and is_remembered(seen, key, now) then
    local owner, of_owner = string.match(known, '^(%d*)(.*)$')
    local is_repetition = is_turn and of_owner == content and (tonumber(owner) or 0) > tonumber(own)
    if not is_repetition then
      return owner ~= own and of_owner
    end
  end
  if content ~= '' and window_end > 0 then
    redis.call('HSET', accepted, key, own .. content)
    redis.call('ZADD', seen, ARGV[4], key)
  end
  return false
end

local answers, appended, last, awaited = {}, 0, false, false
for i = 12, #ARGV, 7 do
  local is_turn = is_next and tonumber(ARGV[i]) >= offset
  local answer = content_of_owner(ARGV[i], ARGV[i + 1], ARGV[i + 2], is_turn)
  if not answer and is_turn then
    last = redis.call('XADD', events, '*', 't', ARGV[i + 3], 'k', ARGV[i + 4], 'e', ARGV[i + 5])
    appended = appended + 1
    if ARGV[i + 6] == '1' then
      answer = last
      awaited = true
      redis.call('ZADD', KEYS[8], ARGV[i], ARGV[i] .. ' ' .. last)
    end
  end
  answers[#answers + 1] = answer or 0
end
forget_excess(seen, accepted, ARGV[5])

-- Return whether Postgres has all events up to an entry, and what every group made of them.
local function is_stored(id)
  local taken = redis.call('HMGET', KEYS[7], 'history', 'events')
  local cursors = taken[1] and string.match(taken[1], '^[^/]+/[^/]+/(.+)$')
  if not cursors or not taken[2] or before(entry_id(taken[2]), id) then
    return false
  end
  for _, cursor in pairs(cjson.decode(cursors)) do
    if before(cursor, id) then
      return false
    end
  end
  return true
end

if is_next then
  redis.call('HINCRBY', feed, 'left_out', after - offset - appended)
  redis.call('HSET', feed, 'offset', ARGV[11])
  offset = after
  if last and (not state[2] or is_stored(string.match(state[2], '%S+$'))) then
    redis.call('HSET', feed, 'mark', ARGV[11] .. ' ' .. last, 'safe', state[2] or '')
  end
  if last and redis.call('DEL', idle) == 1 then
    redis.call('PUBLISH', ARGV[1], ARGV[2])
  end
  if awaited then
    redis.call('ZREMRANGEBYRANK', KEYS[8], 0, -1001)
    redis.call('PUBLISH', ARGV[8], feed)
  end
end
return {offset, is_full and 1 or 0, answers}
