-- Resolves the conflicts between new tasks and the tasks that hold their keys. A new task whose key is held is not stored, but it
-- may replace the payload of the task that holds the key.
--
-- A record describes a new task with a key. The records are in the order of the request:
--
-- [1] -> position in the arguments, where waiting tasks precede delayed ones, 2
-- [2] -> position in the request, 2
-- [3] -> key, 16
-- [4] -> 1 if it holds the key only until a worker claims it, else 0, 1
-- [5] -> what it does if another task holds the key, 1: `j` joins that task; `r` is rejected; `p` replaces the payload of that task,
--   or joins it if that is not possible
-- [6] -> window in milliseconds, or 0, 6
-- [7] -> limit for the delay of a replaced task, in milliseconds since that was stored; the maximum if there is none, 6
-- [8] -> kinds of the task with the priorities high, normal and low, 8 each
--
-- Needs: held_keys.
-- On demand: replacements.

-- Returns what is to be written for tasks with keys. `is_stored` records those that are not stored. `first_entry` is the position of
-- the first entry among the arguments, and `tasks` has the numbers of waiting and of delayed tasks, and of payloads.
local function resolve_conflicts(records, ids, is_stored, first_entry, tasks)
  local RECORD, RECORD_KEY, RECORD_KEY_END, FORMAT = 58, 4, 19, '>I2I2c16Bc1I6I6c24'
  local result, answer = { is_any = false, may_replace = false }, {}
  -- The rows of keys, and the rows before. The keys that change. Positions of the tasks of this request that hold keys, by key.
  local rows, before, changed, is_changed, own = {}, {}, {}, {}, {}
  local replacements

  -- Returns the rows of `alive` of the tasks that these rows name, by key.
  local function read_alive(keys)
    local held, holders, alive = {}, {}, {}
    for _, key in ipairs(keys) do
      local row = rows[key]
      if row then held[#held + 1], holders[#holders + 1] = key, sub(row, 1, HELD_ID_END) end
    end
    for i, row in ipairs(#held > 0 and call('HMGET', ALIVE, unpack(holders)) or {}) do alive[held[i]] = row end
    return alive
  end

  local function change(key, row)
    if not is_changed[key] then changed[#changed + 1], is_changed[key] = key, true end
    rows[key] = row
  end

  -- Has a new task hold its key.
  local function hold(index, key, is_until_started, window)
    own[key] = index
    local row = ids[index] .. pack('>I6', window > 0 and now + window or 0)
    if is_until_started then row = row .. pack('>I6', now) .. ARGV[first_entry + index - 1] end
    change(key, row)
  end

  -- Replaces the payload of the task that holds a key. Returns `false` if that is not possible.
  local function replace(task)
    replacements = replacements or load_replacements()(ids, is_stored, first_entry, tasks, own, change)
    return replacements.replace(task)
  end

  local keys = {}
  for at = 1, #records, RECORD do keys[#keys + 1] = sub(records, at + RECORD_KEY, at + RECORD_KEY_END) end
  for i, row in ipairs(call('HMGET', HELD_KEYS, unpack(keys))) do rows[keys[i]], before[keys[i]] = row, row end
  local alive = read_alive(keys)

  -- The position of the last waiting task with a key so far.
  local last = 0
  for at = 1, #records, RECORD do
    local index, position, key, until_started, resolution, window, limit, kinds = number_at(FORMAT, records, at)
    if index <= tasks.waiting then last = math.max(last, index) end
    local row, holder, is_replaceable = rows[key], nil, false
    if own[key] then holder, is_replaceable = sub(row, 1, HELD_ID_END), #row >= HELD_ENTRY
    elseif row then holder, is_replaceable = holder_of(key, row, alive[key]) end
    result.may_replace = result.may_replace or resolution == 'p'
    if not holder or holder == ids[index] then
      -- If the task exists, an earlier request, whose answer was lost, has stored it.
      if not is_stored[index] then hold(index, key, until_started == 1, window) end
    else
      result.is_any, is_stored[index] = true, true
      local is_replaced = resolution == 'p' and is_replaceable
        and replace({ index = index, key = key, holder = holder, row = row, limit = limit, kinds = kinds, last = last })
      if resolution == 'p' and not is_replaced then resolution = 'j' end
      answer[#answer + 1] = pack('>I2', position) .. resolution .. holder
    end
  end
  result.answer = concat(answer)
  result.replacements = replacements and replacements.finish()

  function result.write()
    local pairs_of_rows = {}
    for i, key in ipairs(changed) do pairs_of_rows[2 * i - 1], pairs_of_rows[2 * i] = key, rows[key] end
    if #changed > 0 then call('HSET', HELD_KEYS, unpack(pairs_of_rows)) end
    if result.replacements then result.replacements.write() end
  end

  -- Undoes the changes. The new tasks have been removed before.
  function result.restore(try)
    if result.replacements then result.replacements.restore(try) end
    for _, key in ipairs(changed) do
      if before[key] then try('HSET', HELD_KEYS, key, before[key]) else try('HDEL', HELD_KEYS, key) end
    end
  end

  return result
end

return resolve_conflicts
