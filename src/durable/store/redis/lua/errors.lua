-- Returns the errors of a task that is alive or a dead letter.
--
-- Needs: retention.
-- KEYS: NONE, META, ALIVE, DIED, ERRORS.
--
-- ARGV[1] -> id
--
-- Output:
-- [1] -> the row of the task in `errors`, or empty
-- [2] -> time in milliseconds
local is_there = call('HEXISTS', ALIVE, ARGV[1]) == 1 or is_dead_letter_kept(call('ZSCORE', DIED, ARGV[1]))
return { is_there and call('HGET', ERRORS, ARGV[1]) or '', now }
