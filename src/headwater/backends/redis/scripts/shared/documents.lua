-- Return whether an outbox has documents that were not copied to Postgres yet.
local function has_documents(outbox)
  local history, documents = unpack(redis.call('HMGET', outbox, 'history', 'documents'))
  return documents and (not history or history == '' or before(entry_id(history), documents))
end
