-- Return the position of an entry in the outbox: its id, and a digest of its fields.
local function position(entry)
  return entry[1] .. '/' .. redis.sha1hex(table.concat(entry[2], '\0'))
end

-- Return the id in a position, or nil for none.
local function entry_id(of)
  return string.match(of, '^[^/]+')
end
