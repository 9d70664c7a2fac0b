#!lua flags=no-writes
-- Return the last documents of partitions, or nil if some were not copied to Postgres yet.
-- KEYS: the outboxes of partitions
-- shared: position
-- shared: order
-- shared: documents

local marks = {}
for place, outbox in ipairs(KEYS) do
  local is_waiting, last = has_documents(outbox)
  if is_waiting then
    return nil
  end
  marks[place] = last
end
return table.concat(marks, ' ')
