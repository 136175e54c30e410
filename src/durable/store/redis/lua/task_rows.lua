-- Describes tasks. A description is an array:
--
-- [1]   -> id
-- [2]   -> name, or nil
-- [3]   -> queue
-- [4]   -> group
-- [5]   -> header of the entry, or nil
-- [6]   -> number of failures without a header
-- [7..] -> for delayed tasks, the time at which they are due; for running ones, the epoch; for ended ones, the time until which they are
--   kept; for dead letters, also the time of death, the reason and the error
--
-- Needs: entry, intact_entry, dead_letter_row, store_time, retention, queues.
local types = {}

-- Returns the name of a task and those of its queue and its group, given its entry.
local function names_of(entry)
  local inline = byte(entry, ENTRY_FLAGS) % 2 == 1 and number_at('>I4', entry, ENTRY_LENGTH) or 0
  local name = sub(entry, ENTRY_PAYLOAD + extension_length(entry) + inline)
  if byte(entry, ENTRY_FLAGS) % 4 < 2 then return name, '', '' end
  return name, queues().queue_of(entry, 0), queues().group_of(entry, 0)
end

-- Describes a task, given its entry. If the entry cannot be read, only the id is known.
local function describe_entry(id, entry, ...)
  if not entry or not is_intact(id, entry) then return { id, false, '', '', false, 0, ... } end
  local name, queue, group = names_of(entry)
  return { id, name, queue, group, sub(entry, 1, ENTRY_PAYLOAD - 1), 0, ... }
end

-- Returns the name and the queue of a kind. If no client has recorded the kind, the name is false.
local function type_of(kind)
  if not types[kind] then
    local row = call('HGET', TYPES, kind) or ''
    local length = byte(row, TYPE_QUEUE_LENGTH)
    local is_known = length and #row >= TYPE_QUEUE_LENGTH + length
    types[kind] = is_known and { sub(row, TYPE_QUEUE + length), sub(row, TYPE_QUEUE, TYPE_QUEUE + length - 1) } or { false, '' }
  end
  return types[kind][1], types[kind][2]
end

-- Returns the number of the last attempt in a row of `errors`.
local function failures_of(id)
  local row, at, failures = call('HGET', ERRORS, id) or '', 7, 0
  while at + 11 <= #row do
    failures = number_at('>I4', row, at)
    at = at + 12 + number_at('>I2', row, at + 10)
  end
  return failures
end

-- Describes a waiting task, given its row in `alive`, its name and its queue.
local function describe_waiting(id, row, name, queue)
  return { id, name, queue, sub(row, ALIVE_KEY_END + 1), false, failures_of(id), 0 }
end

local function describe_running(id, row) return describe_entry(id, sub(row, RUNNING_ENTRY), sub(row, 1, RUNNING_EPOCH_END)) end

-- Describes a task that has succeeded or was cancelled, given its row in `results`. Returns nil if the row is expired, or has another
-- status. An output begins with the name of its task: see `envelope.rs`.
local function describe_result(id, row, status)
  local expiry = #row >= RESULT_STATE and sub(row, RESULT_STATE, RESULT_STATE) == status and number_at('>I6', row) or 0
  if expiry <= store_time() then return nil end
  local name, at = false, RESULT_STATE + 1
  if status == 'd' and byte(row, at) == 1 and #row >= at + 2 then
    name = sub(row, at + 3, at + 2 + number_at('>I2', row, at + 1))
  end
  return { id, name, '', '', false, 0, expiry }
end

-- Describes a dead letter, given its row in `dead` and the time of death.
local function describe_dead(id, row, died)
  local died = tonumber(died)
  local kept_until = died + retention().dead_for
  if not is_dead_letter_row(row) then return { id, false, '', '', false, 0, kept_until, died, DAMAGED, '' } end
  local length = number_at('>I4', row, DEAD_ERROR_LENGTH)
  local error = sub(row, DEAD_ERROR, DEAD_ERROR + math.min(length, MAX_LISTED_ERROR) - 1)
  return describe_entry(id, sub(row, DEAD_ERROR + length), kept_until, died, byte(row), error)
end
