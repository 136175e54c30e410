-- Checks whole entries.
--
-- Needs: entry.
-- Defines: extension_length, is_intact.

-- Returns the length of the extension of an entry, including its length.
local function extension_length(entry)
  if byte(entry, ENTRY_FLAGS) % 4 < 2 or #entry < ENTRY_EXTENSION then return 0 end
  return 2 + number_at('>I2', entry, ENTRY_PAYLOAD)
end

-- Returns `true` if the whole entry can be read and belongs to the task with this id.
local function is_intact(id, entry)
  if not is_entry(entry) or sub(entry, 1, ENTRY_ID_END) ~= id or byte(entry, ENTRY_KIND) < 128 or byte(entry, ENTRY_FLAGS) > 31 then return false end
  local flags, length = byte(entry, ENTRY_FLAGS), ENTRY_PAYLOAD - 1 + extension_length(entry)
  if flags % 4 >= 2 and #entry < ENTRY_EXTENSION then return false end
  if flags % 2 == 1 then length = length + number_at('>I4', entry, ENTRY_LENGTH) end
  return length <= #entry
end
