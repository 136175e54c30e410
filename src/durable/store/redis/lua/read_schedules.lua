-- Reads the names or the rows of schedules.
--
-- Needs no part.
-- KEYS: NONE, META, SCHEDULES.
--
-- ARGV[1]   -> number of names, n
-- ARGV[2..] -> n names
--
-- Output if n is 0: the names of all schedules
-- Output otherwise: the time in milliseconds since 1970, and for each name its row, or nil if there is no such schedule
local n = tonumber(ARGV[1])
if n == 0 then return call('HKEYS', SCHEDULES) end
return { now, unpack(call('HMGET', SCHEDULES, unpack(ARGV, 2, n + 1))) }
