-- Restores lost rows of keys. Without its row, a key would seem free although a live task holds it.
--
-- Needs: entry, intact_entry, outcomes.
-- Defines: restore_keys.

-- Returns the key that a task holds until it ends, or nil. A key that is held only until a claim is not restored: the entry does not
-- say whether the task was claimed, and a spawn must not join a task that has started.
local function lasting_key(id, entry)
  if not is_intact(id, entry) then return nil end
  local key, mode = task_key(entry, 0)
  return #key == 16 and mode % 2 == 0 and key or nil
end

-- Restores missing or unreadable rows of keys from entries. Their windows are lost.
local function restore_keys(ids, entries)
  local repaired = 0
  for i, id in ipairs(ids) do
    local key = lasting_key(id, entries[i])
    local row = key and call('HGET', HELD_KEYS, key)
    if key and (not row or #row < HELD_ID_END) then
      -- The entry may be of a task that has ended.
      local alive = call('HGET', ALIVE, id)
      if alive and sub(alive, ALIVE_KEY, ALIVE_KEY_END) == key then
        call('HSET', HELD_KEYS, key, id)
        repaired = repaired + 1
      end
    end
  end
  if repaired > 0 then make_outcomes().count_damage(repaired, 'the row of a key is missing, or cannot be read', {}) end
end
