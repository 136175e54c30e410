-- Dead letters: reason 1, length of the error 4, error, entry.
--
-- Needs: base.
local function is_letter(row) return row and #row > 4 and byte(row) > 0 and byte(row) <= DAMAGED end
