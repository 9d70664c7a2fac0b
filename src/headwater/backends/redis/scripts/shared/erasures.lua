-- Return whether an entity was erased that the writer does not know of.
local function is_behind(erasures, checked)
  return tonumber(redis.call('GET', erasures) or 0) > tonumber(checked)
end
