-- Removes notes of which the steps are stored, and returns some of the others. See `children.lua`.
--
-- Needs no part.
-- Reads: steps.
-- KEYS: NONE, META, NOTES.
--
-- ARGV[1]   -> number of ids, n
-- ARGV[2..] -> n ids of children
--
-- Output: pairs of ids of children and notes
local n, taken, bytes = tonumber(ARGV[1]), {}, 0
if n > 0 then call('HDEL', NOTES, unpack(ARGV, 2, 1 + n)) end
-- Any of them, so that notes for a partition that does not answer do not hold up the others.
for _, child in ipairs(call('HRANDFIELD', NOTES, MAX_NOTES)) do
  local note = bytes < MAX_NOTE_BYTES and call('HGET', NOTES, child)
  if note then
    bytes = bytes + #note
    taken[#taken + 1], taken[#taken + 2] = child, note
  end
end
if #taken == 0 and meta[8] == '2' then call('HSET', META, 'steps', 1) end
return taken
