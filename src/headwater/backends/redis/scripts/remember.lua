#!lua flags=allow-oom
-- Remember events that were accepted, so that their repetitions are recognized.
-- KEYS: ends of the dedup windows by event, content of the events by event
-- ARGV: end of the dedup window, then for each event: its key, content
for i = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[1], ARGV[1], ARGV[i])
end
return 1
