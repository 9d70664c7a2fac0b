#!lua flags=allow-oom
-- Refuse the writers of a partition that know fewer erasures.
-- KEYS: erasures
-- ARGV: number of erasures
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
