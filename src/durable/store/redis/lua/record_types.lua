-- Records the names and the queues of types, by their kinds. `list_tasks.lua` needs them for waiting tasks, since it does not read the
-- entries of these tasks, which contain the names.
--
-- Needs no part.
-- KEYS: NONE, META, TYPES.
--
-- ARGV[1]   -> number of types, n
-- ARGV[2..] -> n times: kind; length of the name of the queue 1, name of the queue, name of the type
--
-- Output: OK
local rows = {}
for i = 2, 2 * tonumber(ARGV[1]), 2 do
  rows[#rows + 1], rows[#rows + 2] = ARGV[i], pack('>I6', now) .. ARGV[i + 1]
end
call('HSET', TYPES, unpack(rows))
return 'OK'
