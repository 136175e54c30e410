-- Restores rows of keys. Without them, other tasks with these keys would be stored, although tasks that are alive hold them.
--
-- Needs: entry, intact_entry, outcomes.

-- Returns the key that a task holds until it ends, or nil if it has none. A claim may have taken away a key that is held until then, so
-- that one stays free: each task with it is started once at least.
local function lasting_key(id, entry)
  if not is_intact(id, entry) then return nil end
  local key, mode = task_key(entry, 0)
  return #key == 16 and mode % 2 == 0 and key or nil
end

-- Writes rows of keys again that are missing or unreadable, given entries. What the row said about the window is lost.
local function restore_keys(ids, entries)
  local repaired = 0
  for i, id in ipairs(ids) do
    local key = lasting_key(id, entries[i])
    local row = key and call('HGET', HELD_KEYS, key)
    if key and (not row or #row < HELD_ENTRY - 1) then
      -- The task of an entry may have ended.
      local alive = call('HGET', ALIVE, id)
      if alive and sub(alive, ALIVE_KEY, ALIVE_KEY_END) == key then
        call('HSET', HELD_KEYS, key, id .. pack('>I6I6', 0, now) .. char(2))
        repaired = repaired + 1
      end
    end
  end
  if repaired > 0 then make_outcomes().count_damage(repaired, 'the row of a key is missing, or cannot be read', {}) end
end
