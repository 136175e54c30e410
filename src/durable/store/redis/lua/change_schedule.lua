-- Changes a schedule, and stores tasks in the same step. A server without memory refuses this, unless the change removes the
-- schedule or leaves it paused.
--
-- Needs: lists, schedules.
-- Ends with: add_tasks.
-- Reads: schedules.
-- Undo: schedule.
-- KEYS: NONE, META, READY, ALIVE, PAYLOADS, DELAYED, DUE, RESULTS, DEAD, DIED, ERRORS, TOMBSTONES, IDLE, ROUTES, UNLISTED,
--   QUEUES, PERMITS, HELD_KEYS, GROUPS, SCHEDULES, SCHEDULE_TIMES, PROGRESS, STEPS.
--
-- ARGV[1]   -> name of the schedule
-- ARGV[2]   -> version of the row that this replaces; empty if the schedule is new; `moved` if it was removed from another
--   partition. In the last two cases, there must be no row
-- ARGV[3]   -> new row, in which all of the tasks count as started; empty to remove the schedule
-- ARGV[4..] -> the tasks: see `add_tasks.lua`
--
-- Output: the same as that of `enqueue.lua`, or CHANGED if the row has another version or a new schedule is due already; then nothing has
-- changed. If the row is removed, the output is REMOVED, or OK if there is none. If the new row is stored already, the output is
-- REPEATED, and the id of the last task in the row.
--
-- Errors: UNDONE or PARTIAL if a command failed
local name, before, after = ARGV[1], ARGV[2], ARGV[3]
local waiting_count, delayed_count = tonumber(ARGV[4]), tonumber(ARGV[5])
local total = waiting_count + delayed_count
local row = call('HGET', SCHEDULES, name)
-- A row that cannot be read counts as missing.
if row and #row < SCHEDULE_BODY - 1 then row = false end
local found = row and sub(row, 1, SCHEDULE_VERSION_END) or ''
if found == sub(after, 1, SCHEDULE_VERSION_END) then return row and { 'REPEATED', sub(row, SCHEDULE_LAST_TASK, SCHEDULE_BODY - 1) } or 'OK' end
if found ~= (before == 'moved' and '' or before) then return 'CHANGED' end

-- Returns the sorted set of a row, and the time of the row, which is 0 if the schedule is paused or missing.
local function time_of(some)
  if not some or some == '' then return schedule_times(1), 0 end
  return schedule_times(byte(some, SCHEDULE_NEEDS)), number_at('>I6', some, SCHEDULE_TIME)
end
local times, time = time_of(after)
local times_before = time_of(row)
-- The tick of a new schedule that is due may have fired already, before the schedule was removed.
if before == '' and time > 0 and time <= now then return 'CHANGED' end
if time == 0 then
  -- The first write must be one that a server without memory accepts; it then accepts the others.
  local key = times
  call('ZREM', key, '')
end

-- Returns the new row, in which tasks that were not stored because others hold their keys count as skipped.
local function count_conflicts(unstored)
  local n = #unstored / 19
  local started, skipped = number_at('>I6I6', after, SCHEDULE_STARTED)
  return sub(after, 1, SCHEDULE_STARTED - 1) .. pack('>I6I6', math.max(started - n, 0), skipped + n) .. sub(unstored, -16)
    .. sub(after, SCHEDULE_BODY)
end

-- A task of a schedule may start a round trip later than a spawned one.
local push_claim = nil
local is_earlier = time > 0 and time < math.min(first_hand_out_of(1), first_hand_out_of(2))
-- The time at which the schedule would be handed out next. If this change is undone, the time is written again.
local key_before = times_before
local hand_out = row and call('ZSCORE', key_before, name)
local undo_by, session, schedule = 'schedule', nil, { row = row, times = times_before, time = hand_out, other_times = times }

-- Writes the new row.
local function confirm(unstored)
  call('HSET', META, 'schedules', '')
  meta[6] = ''
  if after == '' then call('HDEL', SCHEDULES, name)
  else call('HSET', SCHEDULES, name, unstored and count_conflicts(unstored) or after) end
  if hand_out and (time == 0 or times_before ~= times) then call('ZREM', key_before, name) end
  if time > 0 then
    local key = times
    call('ZADD', key, time, name)
  end
  -- The change has taken effect. Failures from here on do not change that.
  pcall(save_first_hand_outs)
  -- Idle workers do not expect a schedule at the new time, so one is woken.
  if is_earlier then pcall(lists().wake_one) end
  return after == '' and 'REMOVED'
end
