#!lua flags=no-writes
-- Return 1 if a partition has documents that were not copied to Postgres yet, otherwise 0.
-- KEYS: the outboxes of partitions
-- shared: position
-- shared: order
-- shared: documents

for _, outbox in ipairs(KEYS) do
  if has_documents(outbox) then
    return 1
  end
end
return 0
