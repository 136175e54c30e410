-- The rows of `alive`.
--
-- Needs: entry, queues.
-- Defines: alive_row.

-- Returns the row of a task in `alive`, given a row whose entry begins after `before` bytes.
local function alive_row(row, before)
  local key, group, parent = task_key(row, before), '', parent_in(row, before)
  if byte(row, before + ENTRY_FLAGS) % 4 >= 2 then group = queues().group_of(row, before) end
  if key == '' and (group ~= '' or parent ~= '') then key = string.rep('\0', 16) end
  if parent ~= '' then parent = '\255' .. parent end
  return sub(row, before + ENTRY_CLIENT, before + ENTRY_RETENTION_END) .. sub(row, before + ENTRY_KIND, before + ENTRY_KIND_END) .. key .. group .. parent
end
