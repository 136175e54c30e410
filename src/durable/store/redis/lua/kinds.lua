-- Returns the kinds that clients have recorded.
--
-- Needs no part.
-- KEYS: NONE, META, TYPES.
--
-- ARGV[1] -> 1 to select the kinds of types with a name, else 0
-- ARGV[2] -> the name
-- ARGV[3] -> 1 to select the kinds of one queue, else 0
-- ARGV[4] -> the name of the queue; empty for the default queue
--
-- Output: for each kind: the kind; the length of the name of the queue 1, the name of the queue, the name of the type
local found, rows = {}, call('HGETALL', TYPES)
for i = 1, #rows, 2 do
  local length = byte(rows[i + 1], TYPE_QUEUE_LENGTH)
  if length and #rows[i] == 8 then
    local queue, name = sub(rows[i + 1], TYPE_QUEUE, TYPE_QUEUE + length - 1), sub(rows[i + 1], TYPE_QUEUE + length)
    if (ARGV[1] ~= '1' or name == ARGV[2]) and (ARGV[3] ~= '1' or queue == ARGV[4]) then
      found[#found + 1], found[#found + 2] = rows[i], sub(rows[i + 1], TYPE_QUEUE_LENGTH)
    end
  end
end
return found
