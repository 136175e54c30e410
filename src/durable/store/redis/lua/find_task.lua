-- Returns a task. Writes nothing.
--
-- No key contains the position of a waiting task in its list. So its entry is found only if it is near the head or the end of the list, or
-- near the position that the time in its id suggests.
--
-- Needs: task_rows, alive_tail, lists, groups, session, held_keys, retention.
-- KEYS: NONE, META, SESSIONS, READY, ALIVE, PAYLOADS, DELAYED, DUE, RUNNING, CLAIMS, LEASE, RESULTS, DEAD, DIED, ERRORS, CANCEL,
--   TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS, GROUPS, PROGRESS, TYPES, STEPS.
--
-- ARGV[1] -> id
-- ARGV[2] -> maximum number of bytes of the payload and of the output
--
-- Output: empty if there is no such task, else:
-- [1]  -> status: w, l, r, d, x or c, as in `status.lua`
-- [2]  -> description of the task: see `task_rows.lua`
-- [3]  -> time in milliseconds: of the clock, or of the store for ended tasks
-- [4]  -> time in milliseconds of the clock
-- [5]  -> entry, or empty
-- [6]  -> kind, or empty
-- [7]  -> beginning of the payload if it is stored separately, or nil
-- [8]  -> length of that payload
-- [9]  -> beginning of the output, or nil
-- [10] -> length of the output
-- [11] -> row of `errors`, or empty
-- [12] -> error of a dead letter, or empty
-- [13] -> row of `progress`, or empty
-- [14] -> h if the task holds its key, r if it does not hold it any more, or empty if it has none
-- [15] -> 1 if a running task is to be cancelled, else 0
-- [16] -> time in milliseconds at which the lease expires, or empty
-- [17] -> session of the worker, or empty
-- [18] -> description of the process of the session, or empty
-- [19] -> 1 if the claim is a suspect, else 0
-- [20] -> description of damage, or empty
-- [21] -> row of a delayed task that says for how many steps it waits, and for which: see `steps.lua`, or empty
-- [22] -> id of the parent, or empty
local id, budget = ARGV[1], tonumber(ARGV[2])
-- The number of entries that are read at each end of a list, and on each side of a position.
local NEAR = 100
-- Longer lists are searched only near their ends: each step of a search takes time in proportion to the length of the list.
local MAX_SEARCHED = 1000000
-- The clock of a producer, and the time that a task takes to be stored, may differ by this number of milliseconds from the store's clock.
local MAX_SKEW = 60000
local status, description, entry, kind, output, dead_error, damage
local is_cancelled, lease_end, worker, process, is_suspect = 0, '', '', '', 0
local alive = call('HGET', ALIVE, id)

-- ===== Tasks that have not ended =====

-- Returns the position of a task in the order of time, as two numbers: the time at which its new id was created, and the rest of the id.
-- Returns nil for an id that was not created by `TaskId::new`.
local function position_of(id)
  local is_new = byte(id, 7) >= 0x70 and byte(id, 7) < 0x80 and byte(id, 9) >= 0x80 and byte(id, 9) < 0xc0
  if is_new then return number_at('>I6I6', id) end
end

-- Returns the position of an entry in the order of its list. A task that was delayed, or waited for another attempt, is where it became
-- ready, however old its id is.
local function position_of_entry(entry)
  local time, rest = position_of(entry)
  local ready_at = number_at('>I6', entry, ENTRY_READY_AT)
  if time and math.abs(ready_at - time) < MAX_SKEW then return time, rest end
  return ready_at, 0
end

-- Returns an entry of a list at an index, or soon after it and before another one. Returns nil if none of them can be read.
local function entry_near(key, index, before)
  for at = index, math.min(index + 4, before) - 1 do
    local entry = call('LINDEX', key, at)
    if entry and is_entry(entry) then return entry end
  end
end

-- Returns the number of entries of a list that precede a position, by a binary search. This is approximate, since the order of a list is
-- not quite that of the positions.
local function count_before(key, length, time, rest)
  local low, high = 0, length
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = entry_near(key, middle, high)
    local its_time, its_rest = 0, 0
    if entry then its_time, its_rest = position_of_entry(entry) end
    if its_time < time or its_time == time and its_rest < rest then low = middle + 1 else high = middle end
  end
  return low
end

-- Returns an entry of a list for which `is_wanted` returns `true`, if it is near an end of the list or near the position of the task.
local function find_in(key, is_wanted)
  local function look(first, last)
    for _, entry in ipairs(call('LRANGE', key, first, last)) do
      if is_wanted(entry) then return entry end
    end
  end
  local found = look(0, NEAR - 1) or look(-NEAR, -1)
  local time, rest = position_of(id)
  local length = not found and time and call('LLEN', key) or 0
  if length <= 2 * NEAR or length > MAX_SEARCHED then return found end
  local at = count_before(key, length, time, rest)
  return look(math.max(at - NEAR, 0), at + NEAR - 1)
end

-- Returns the entry of a waiting task if it is found in a list of its path. If the task has a tombstone, an entry may be an old one, so
-- none is returned.
local function find_waiting(group)
  if call('HEXISTS', TOMBSTONES, id .. kind .. group) == 1 then return nil end
  local function is_wanted(entry) return is_intact(id, entry) and sub(entry, ENTRY_KIND, ENTRY_KIND_END) == kind end
  local path = lists().path_of(kind)
  for at = 1, #path, 16 do
    local list = sub(path, at, at + 15)
    local key = group == '' and key_of(list) or groups().sublist_key(list, group)
    local found = find_in(key, is_wanted)
    if found then return found end
  end
end

local function read_waiting()
  status = 'w'
  if #alive < ALIVE_KIND_END then
    description, damage = { id, false, '', '', false, 0 }, 'its row in `alive` cannot be read'
    return
  end
  kind = sub(alive, ALIVE_KIND, ALIVE_KIND_END)
  entry = find_waiting(group_in(alive))
  if entry then description = describe_entry(id, entry)
  else
    local name, queue = type_of(kind)
    description = describe_waiting(id, alive, name, queue)
  end
end

local function read_claim(epoch)
  is_cancelled = call('HGET', CANCEL, id) == epoch and 1 or 0
  lease_end = call('ZSCORE', LEASE, epoch) or ''
  is_suspect = call('HEXISTS', CLAIMS, epoch .. 's')
  worker = sub(call('HGET', CLAIMS, epoch .. 'o') or '', OWNER_SESSION)
  local session = find_session(worker)
  process = session and string.match(session.process, '^%S+ (.*)$') or ''
end

local function read_alive()
  local running, due = call('HGET', RUNNING, id), call('ZSCORE', DUE, id)
  if running then
    status, description, entry = 'r', describe_running(id, running), sub(running, RUNNING_ENTRY)
    read_claim(sub(running, 1, RUNNING_EPOCH_END))
  elseif due then
    status, entry = 'l', call('HGET', DELAYED, id) or ''
    description = describe_entry(id, entry, tonumber(due))
  else read_waiting() end
end

-- ===== Tasks that have ended =====

local function read_dead(died)
  local row = call('HGET', DEAD, id)
  status, description = 'x', describe_dead(id, row, died)
  if is_dead_letter_row(row) then
    local length = number_at('>I4', row, DEAD_ERROR_LENGTH)
    dead_error, entry = sub(row, DEAD_ERROR, DEAD_ERROR + length - 1), sub(row, DEAD_ERROR + length)
  else damage = 'its dead letter is missing, or cannot be read' end
end

-- Reads a result. Returns `false` if it is no longer kept.
local function read_result(row)
  if #row >= RESULT_STATE and number_at('>I6', row) <= store_time() then return false end
  for _, letter in ipairs({ 'd', 'c' }) do
    description = description or describe_result(id, row, letter)
    if description and not status then status = letter end
  end
  if status == 'd' then output = sub(row, RESULT_STATE + 1) end
  if not status then
    status, damage = 'x', 'its result cannot be read'
    description = { id, false, '', '', false, 0, store_time(), store_time(), '', DAMAGED, damage }
  end
  return true
end

local function read_ended()
  local row = call('HGET', RESULTS, id)
  if row and read_result(row) then return end
  local died = call('ZSCORE', DIED, id)
  if is_dead_letter_kept(died) then read_dead(died) end
end

if alive then read_alive() else read_ended() end
if not status then return {} end

-- ===== The rest =====

local is_unfinished = status ~= 'd' and status ~= 'c'
local has_entry = entry and is_intact(id, entry)
if has_entry then kind = sub(entry, ENTRY_KIND, ENTRY_KIND_END)
elseif entry then damage = 'its entry is missing, or cannot be read' end

-- Returns h or r if the task has a key.
local function key_state()
  local key = has_entry and task_key(entry, 0) or status == 'w' and sub(alive, ALIVE_KEY, ALIVE_KEY_END) or ''
  if #key ~= 16 or key == string.rep('\0', 16) then return '' end
  local row = call('HGET', HELD_KEYS, key)
  return row and holder_of(key, row, call('HGET', ALIVE, sub(row, 1, HELD_ID_END))) == id and 'h' or 'r'
end

local function waits_row()
  local key = STEPS .. ':' .. id
  return call('HGET', key, '') or ''
end

-- The row in `alive` also names the parent of a waiting task whose entry was not found.
local function parent()
  if has_entry then return parent_in(entry, 0) end
  return status == 'w' and parent_in_row(alive) or ''
end

local separate = is_unfinished and not (has_entry and byte(entry, ENTRY_FLAGS) % 2 == 1) and call('HGET', PAYLOADS, id)
return {
  status, description, (status == 'w' or status == 'l' or status == 'r') and now or store_time(), now, entry or '', kind or '',
  separate and sub(separate, 1, budget), separate and #separate or 0, output and sub(output, 1, budget) or false, output and #output or 0,
  is_unfinished and call('HGET', ERRORS, id) or '', dead_error or '', alive and call('HGET', PROGRESS, id) or '',
  is_unfinished and key_state() or '', is_cancelled, lease_end, worker, process, is_suspect, damage or '',
  status == 'l' and waits_row() or '', parent(),
}
