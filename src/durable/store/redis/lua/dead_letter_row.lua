-- Checks rows of `dead`. `layout.lua` describes the format.
--
-- Needs no other part.
-- Defines: is_dead_letter_row.
local function is_dead_letter_row(row) return row and #row >= DEAD_ERROR - 1 and byte(row) > 0 and byte(row) <= DAMAGED end
