#!lua flags=allow-oom
-- Return 1 if a partition has changes or events that were not copied to Postgres yet, otherwise 0,
-- the positions of the last change and the last event settled, 1 if it has documents that were not
-- copied, otherwise 0, and the time of the server in microseconds.
-- KEYS: changes, events, outbox
-- shared: position
-- shared: order
-- shared: documents
-- shared: clock

local _, now = server_micros()
local settled = redis.call('HMGET', KEYS[3], 'history', 'events')
local history, events = settled[1] or '', settled[2] or ''
local pending = redis.call('XLEN', KEYS[1]) > 0
if not pending then
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
  pending = #last > 0 and last[1][1] ~= entry_id(events)
end
return {pending and 1 or 0, history, events, has_documents(KEYS[3]) and 1 or 0, now}
