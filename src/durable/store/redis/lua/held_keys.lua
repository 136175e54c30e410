-- Keys: which task holds a key.
--
-- A row of `held_keys` names the task that got the key last: see `layout.lua`. Its mode is the sum of 1 if the task holds the key only
-- until a worker claims it, and 2 if a worker has claimed it. The row alone does not say that the key is held: the task must also be
-- alive, or in its window with its end still kept. So a script that ends a task need not change the row; maintenance removes it.
--
-- Needs: entry, store_time.

-- Returns `true` if the result of a task is kept. A large result is not read, since that costs time: it counts as kept until
-- maintenance removes it.
local function has_kept_result(id)
  local length = call('HSTRLEN', RESULTS, id)
  if length < RESULT_STATE or length > 4096 then return length > 4096 end
  return number_at('>I6', call('HGET', RESULTS, id)) > store_time()
end

-- Returns the id of the task that holds a key, given the row of the key, and `true` if the task is alive and was never claimed.
local function holder_of(key, row)
  if not row or #row < HELD_ENTRY - 1 then return nil end
  local id, mode = sub(row, 1, HELD_ID_END), byte(row, HELD_MODE)
  local alive = call('HGET', ALIVE, id)
  -- If the row has no such key, a later task has the same id.
  if alive and sub(alive, ALIVE_KEY) ~= key then return nil end
  if alive and mode ~= 3 then return id, mode < 2 end
  if number_at('>I6', row, HELD_UNTIL) <= now then return nil end
  if alive then return id, false end
  local since = tonumber(call('ZSCORE', DIED, id) or '-inf')
  return (has_kept_result(id) or since + DEAD_RETENTION > store_time()) and id or nil, false
end
