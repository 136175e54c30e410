-- Keys: which task holds a key.
--
-- A row of `held_keys` names the task that got the key last: see `layout.lua`. The row alone does not say that the key is held: the
-- task must also be alive, or in its window with its end still kept. So a script that ends a task need not change the row;
-- maintenance removes it. If a task holds its key only until a worker claims it, the claim removes the row.
--
-- Needs: entry, store_time, retention.
-- Defines: holder_of.

-- Returns `true` if the result of a task is kept. A large result is not read, since that costs time: it counts as kept until
-- maintenance removes it.
local function has_kept_result(id)
  local length = call('HSTRLEN', RESULTS, id)
  if length < RESULT_STATE or length > 4096 then return length > 4096 end
  return number_at('>I6', call('HGET', RESULTS, id)) > store_time()
end

-- Returns the task that holds a key, given the rows of the key and of its task in `alive`, and `true` if the payload of that
-- task can be replaced.
local function holder_of(key, row, alive)
  if not row or #row < HELD_ID_END then return nil end
  local id = sub(row, 1, HELD_ID_END)
  -- If the row has no such key, a later task has the same id.
  if alive then return sub(alive, ALIVE_KEY, ALIVE_KEY_END) == key and id or nil, #row >= HELD_ENTRY end
  if #row < HELD_UNTIL_END or number_at('>I6', row, HELD_UNTIL) <= now then return nil end
  return (has_kept_result(id) or is_dead_letter_kept(call('ZSCORE', DIED, id))) and id or nil, false
end
