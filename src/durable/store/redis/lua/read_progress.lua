-- Returns the progress of tasks, in the order of their ids. Writes nothing.
--
-- Needs no part.
-- KEYS: NONE, META, ALIVE, PROGRESS.
--
-- ARGV[1]   -> number of ids, n
-- ARGV[2..] -> n ids
--
-- Output: for each id: nil if the task has ended or is absent; else its row in `progress`, or empty
local n = tonumber(ARGV[1])
if n == 0 then return {} end
local states, rows = call('HMGET', ALIVE, unpack(ARGV, 2, 1 + n)), call('HMGET', PROGRESS, unpack(ARGV, 2, 1 + n))
for i = 1, n do states[i] = states[i] and (rows[i] or '') end
return states
