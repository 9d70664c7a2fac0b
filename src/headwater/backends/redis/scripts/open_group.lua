#!lua flags=allow-oom
-- Give a group its place in a partition that another worker is to claim.
-- KEYS: group, events
-- ARGV: name of the group
-- shared: fields
-- shared: cursor
open_group(KEYS[1], KEYS[2], ARGV[1])
