-- Returns the errors of a task that is alive or a dead letter.
--
-- Needs: store_time.
-- ARGV: 1 the id.
-- Result: 1 its row in `errors`, or empty; 2 the time.
local died = tonumber(call('ZSCORE', DIED, ARGV[1]) or '-inf')
local is_there = call('HEXISTS', ALIVE, ARGV[1]) == 1 or died + DEAD_RETENTION > store_time()
return { is_there and call('HGET', ERRORS, ARGV[1]) or '', now }
