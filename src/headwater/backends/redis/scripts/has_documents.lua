#!lua flags=no-writes
-- Return 1 if a partition has documents that were not copied to Postgres yet, otherwise 0.
-- KEYS: the outboxes of partitions
-- shared: position
-- shared: order

for _, outbox in ipairs(KEYS) do
  local found = redis.call('HMGET', outbox, 'history', 'documents')
  local history, documents = found[1], found[2]
  if documents and (not history or history == '' or before(entry_id(history), documents)) then
    return 1
  end
end
return 0
