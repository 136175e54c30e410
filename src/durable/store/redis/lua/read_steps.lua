-- Returns the steps of a task. Writes nothing.
--
-- Needs no part.
-- KEYS: NONE, META, STEPS.
--
-- ARGV[1] -> id
--
-- Output:
-- [1] -> time in milliseconds since 1970
-- [2] -> row of the task in `steps`, or nil
-- [3] -> the rows of `steps:<id>` and their names, as pairs
local key = STEPS .. ':' .. ARGV[1]
return { now, call('HGET', STEPS, ARGV[1]), call('HGETALL', key) }
