-- Splits a string of ids, of 16 bytes each.
--
-- Needs no other part.
-- Defines: split_ids.
local function split_ids(text)
  local ids = {}
  for at = 1, #text, 16 do ids[#ids + 1] = sub(text, at, at + 15) end
  return ids
end
