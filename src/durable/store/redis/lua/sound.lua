-- The check that a whole entry can be read.
--
-- Needs: entry.

-- Returns whether the whole entry can be read, and is that of the task with this id.
local function is_sound(id, entry)
  if not is_entry(entry) or sub(entry, 1, 16) ~= id or byte(entry, 47) < 128 or byte(entry, FLAGS) > 31 then return false end
  return byte(entry, FLAGS) % 2 == 0 or PAYLOAD - 1 + number_at('>I4', entry, LENGTH) <= #entry
end
