-- Return whether an outbox has documents that were not copied to Postgres yet, and its last ones.
local function has_documents(outbox)
  local history, documents = unpack(redis.call('HMGET', outbox, 'history', 'documents'))
  local is_copied = documents and history and history ~= '' and not before(entry_id(history), documents)
  return documents and not is_copied, documents or ''
end
