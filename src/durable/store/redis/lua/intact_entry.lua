-- Checks whole entries.
--
-- Needs: entry.

-- Returns `true` if the whole entry can be read and belongs to the task with this id.
local function is_intact(id, entry)
  if not is_entry(entry) or sub(entry, 1, ENTRY_ID_END) ~= id or byte(entry, ENTRY_KIND) < 128 or byte(entry, ENTRY_FLAGS) > 31 then return false end
  return byte(entry, ENTRY_FLAGS) % 2 == 0 or ENTRY_PAYLOAD - 1 + number_at('>I4', entry, ENTRY_LENGTH) <= #entry
end
