-- Checks that there is a store that an observer can read. Writes nothing.
--
-- Needs no part.
-- KEYS: NONE, META.
--
-- ARGV[1] -> number of partitions
--
-- Output: OK
--
-- Errors:
-- NOSTORE <text>      -> there is no store
-- PARTITIONS <number> -> the store has another number of partitions
local found = call('HMGET', META, 'layout_copy', 'partitions')
if not meta[1] and not found[1] then return redis.error_reply('NOSTORE there is no store') end
if found[2] and found[2] ~= ARGV[1] then return redis.error_reply('PARTITIONS ' .. found[2]) end
return 'OK'
