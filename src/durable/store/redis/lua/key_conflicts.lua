-- Resolves the conflicts between new tasks and the tasks that hold their keys. A new task whose key is held is not stored, but it
-- may replace the payload of the task that holds the key.
--
-- `records`, which is ARGV[9] of `add_tasks.lua`, is `p` if one of the tasks may replace the payload of another one, `s` if each of the
-- tasks holds its key until it ends, without a window, else `-`, and then a record for each new task with a key, in the order of the
-- request:
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
--
-- ARGV[first_entry..] -> entries of the new tasks, those of waiting tasks first: see `add_tasks.lua`
--
-- Returns: the function `resolve_conflicts`.

-- Returns what is to be written for tasks with keys. `is_stored` records those that are not stored. `first_entry` is the position of
-- the first entry among the arguments, and `tasks` has the numbers of waiting and of delayed tasks, and of payloads.
local function resolve_conflicts(records, ids, is_stored, first_entry, tasks)
  local RECORD, KEY, HOLDING, RESOLUTION, LIMIT, NO_WINDOW = 58, 4, 20, 21, 28, '\0\0\0\0\0\0'
  local result, answer, keys = { is_any = false, may_replace = sub(records, 1, 1) == 'p' }, {}, {}
  local is_simple = sub(records, 1, 1) == 's'
  for at = 2, #records, RECORD do keys[#keys + 1] = sub(records, at + KEY, at + HOLDING - 1) end
  -- The rows of keys, and the rows before. The keys that change, each followed by its row. Positions of the tasks of this request that
  -- hold keys, by key.
  local rows, before, changed, own = {}, {}, {}, {}
  for i, row in ipairs(call('HMGET', HELD_KEYS, unpack(keys))) do
    if row then rows[keys[i]], before[keys[i]] = row, row end
  end
  local alive, replacements

  -- The rows of keys without the ids, by the way in which tasks hold their keys. Most tasks of a request hold them in the same way.
  local ends = {}
  local function end_of_row(holding)
    local window, is_until_started = sub(holding, 3), byte(holding) == 1
    local row_end = window ~= NO_WINDOW and pack('>I6', now + number_at('>I6', window)) or is_until_started and NO_WINDOW or ''
    ends[holding] = is_until_started and row_end .. pack('>I6', now) or row_end
    return ends[holding]
  end

  -- Returns the row of a key that a new task holds.
  local function row_of(index, at)
    local holding = sub(records, at + HOLDING, at + LIMIT - 1)
    local row = ids[index] .. (ends[holding] or end_of_row(holding))
    return byte(holding) == 1 and row .. ARGV[first_entry + index - 1] or row
  end

  -- Has a new task hold its key.
  local function hold(index, key, at)
    local row, n = is_simple and ids[index] or row_of(index, at), #changed
    own[key], changed[n + 1], changed[n + 2] = index, key, row
    if not is_simple then rows[key] = row end
  end

  -- Changes the row of a key that a task has held before.
  local function change(key, row)
    if not own[key] and rows[key] == before[key] then changed[#changed + 1], changed[#changed + 2] = key, row end
    rows[key] = row
  end

  -- Reads the rows of `alive` of the tasks that the rows of keys name, by key.
  local function read_alive()
    local held, holders = {}, {}
    for key, row in pairs(before) do held[#held + 1], holders[#holders + 1] = key, sub(row, 1, HELD_ID_END) end
    alive = {}
    for i, row in ipairs(#held > 0 and call('HMGET', ALIVE, unpack(holders)) or {}) do alive[held[i]] = row end
  end

  -- Returns the task that holds a key, and `true` if its payload can be replaced.
  local function find_holder(key, row)
    if own[key] then return ids[own[key]], not is_simple and #row >= HELD_ENTRY end
    if not alive then read_alive() end
    return holder_of(key, row, alive[key])
  end

  -- Replaces the payload of the task that holds a key. Returns `false` if that is not possible.
  local function replace(index, key, holder, at, last)
    replacements = replacements or load_replacements()(ids, is_stored, first_entry, tasks, own, change)
    local limit, kinds = number_at('>I6c24', records, at + LIMIT)
    return replacements.replace({
      index = index, key = key, holder = holder, row = rows[key], limit = limit, kinds = kinds, last = last,
    })
  end

  -- The position of the last waiting task with a key so far.
  local last = 0
  for n, key in ipairs(keys) do
    local at = 2 + (n - 1) * RECORD
    local high, low = byte(records, at, at + 1)
    local index, row, holder, is_replaceable = 256 * high + low, rows[key], nil, false
    if index <= tasks.waiting and index > last then last = index end
    if row or own[key] then holder, is_replaceable = find_holder(key, row) end
    if not holder or holder == ids[index] then
      -- If the task exists, an earlier request, whose answer was lost, has stored it.
      if not is_stored[index] then hold(index, key, at) end
    else
      local resolution = sub(records, at + RESOLUTION, at + RESOLUTION)
      result.is_any, is_stored[index] = true, true
      if resolution == 'p' and not (is_replaceable and replace(index, key, holder, at, last)) then resolution = 'j' end
      answer[#answer + 1] = sub(records, at + 2, at + 3) .. resolution .. holder
    end
  end
  result.answer = concat(answer)
  if replacements then result.replacements = replacements.finish() end

  function result.write()
    -- Replacements may have changed rows again.
    for i = 1, replacements and #changed or 0, 2 do changed[i + 1] = rows[changed[i]] end
    if #changed > 0 then call('HSET', HELD_KEYS, unpack(changed)) end
    if replacements then replacements.write() end
  end

  -- Undoes the changes. The new tasks have been removed before.
  function result.restore(try)
    if replacements then replacements.restore(try) end
    for i = 1, #changed, 2 do
      local key = changed[i]
      if before[key] then try('HSET', HELD_KEYS, key, before[key]) else try('HDEL', HELD_KEYS, key) end
    end
  end

  return result
end

return resolve_conflicts
