local function parts(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

-- Return whether one entry of a stream comes before another.
local function before(a, b)
  local a_ms, a_n = parts(a)
  local b_ms, b_n = parts(b)
  return a_ms < b_ms or (a_ms == b_ms and a_n < b_n)
end
