-- Return a reply of names and values by turns as a table.
local function fields(reply)
  local values = {}
  for i = 1, #reply, 2 do
    values[reply[i]] = reply[i + 1]
  end
  return values
end
