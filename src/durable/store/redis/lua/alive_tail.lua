-- The end of a row of `alive`: the name of the group, which is text and so has no byte 255; then, if the task has a parent, this byte
-- and the id of the parent.
--
-- Needs no other part.
-- Defines: group_in, parent_in_row.

-- Returns the group of a task, given its row in `alive`.
local function group_in(row) return string.match(row, '^[^\255]*', ALIVE_KEY_END + 1) end

-- Returns the parent of a task, given its row in `alive`, or an empty string.
local function parent_in_row(row)
  local at = string.find(row, '\255', ALIVE_KEY_END + 1, true)
  return at and sub(row, at + 1) or ''
end
