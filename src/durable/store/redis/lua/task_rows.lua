-- Describes tasks. A description is an array:
--
-- [1]   -> id
-- [2]   -> name, or nil
-- [3]   -> queue
-- [4]   -> group
-- [5]   -> header of the entry, or nil
-- [6]   -> number of failures without a header
-- [7..] -> for delayed tasks, the time at which they are due; for running ones, the epoch, and the time of the claim, or -1; for ended
--   ones, the time until which they are kept, the time at which they ended, and the duration of the last run 4, or empty; for dead letters,
--   also the reason and the error
--
-- Needs: entry, alive_tail, intact_entry, dead_letter_row, store_time, retention, queues, type_names.
-- Defines: describe_entry, describe_waiting, describe_running, describe_result, describe_dead.
local claim_times = {}

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

-- Returns the number of the last attempt in a row of `errors`.
local function failures_of(id)
  local row, at, failures = call('HGET', ERRORS, id) or '', 7, 0
  while at + 15 <= #row do
    failures = number_at('>I4', row, at)
    at = at + 16 + number_at('>I2', row, at + 14)
  end
  return failures
end

-- Describes a waiting task, given its row in `alive`, its name and its queue.
local function describe_waiting(id, row, name, queue)
  return { id, name, queue, group_in(row), false, failures_of(id), 0 }
end

-- Returns the time of a claim, or -1 if it is lost.
local function claimed_at(epoch)
  if not claim_times[epoch] then
    local owner = call('HGET', CLAIMS, epoch .. 'o') or ''
    claim_times[epoch] = #owner >= OWNER_SESSION and number_at('>I6', owner, OWNER_CLAIMED_AT) or -1
  end
  return claim_times[epoch]
end

local function describe_running(id, row)
  local epoch = sub(row, 1, RUNNING_EPOCH_END)
  return describe_entry(id, sub(row, RUNNING_ENTRY), epoch, claimed_at(epoch))
end

-- Describes a task that has succeeded or was cancelled, given its row in `results`. Returns nil if the row is expired, or has another
-- status. An output begins with the duration of the run and the name of the task: see `envelope.rs`.
local function describe_result(id, row, status)
  local expiry = #row >= RESULT_STATE and sub(row, RESULT_STATE, RESULT_STATE) == status and number_at('>I6', row) or 0
  if expiry <= store_time() then return nil end
  local name, took, at = false, '', RESULT_STATE + 1
  if status == 'd' and byte(row, at) == 1 then
    if #row >= at + 4 then took = sub(row, at + 1, at + 4) end
    if #row >= at + 6 then name = sub(row, at + 7, at + 6 + number_at('>I2', row, at + 5)) end
  elseif status == 'c' and #row >= at then
    name = sub(row, at)
  end
  return { id, name, '', '', false, 0, expiry, number_at('>I6', row, RESULT_ENDED_AT), took }
end

-- Describes a dead letter, given its row in `dead` and the time of death.
local function describe_dead(id, row, died)
  local died = tonumber(died)
  local kept_until = died + retention().dead_for
  if not is_dead_letter_row(row) then return { id, false, '', '', false, 0, kept_until, died, '', DAMAGED, '' } end
  local length = number_at('>I4', row, DEAD_ERROR_LENGTH)
  local error = sub(row, DEAD_ERROR, DEAD_ERROR + math.min(length, MAX_LISTED_ERROR) - 1)
  return describe_entry(id, sub(row, DEAD_ERROR + length), kept_until, died, sub(row, DEAD_TOOK, DEAD_TOOK + 3), byte(row), error)
end
