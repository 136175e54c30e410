-- Repairs rows of schedules, and the sorted sets from which schedules are handed out.
--
-- Needs: repair, schedules.
-- Reads: schedules.
-- Defines: repair_schedules.

local function remove_times(name)
  for needs = 1, 2 do
    local key = schedule_times(needs)
    call('ZREM', key, name)
  end
end

-- Examines a page of schedules. Removes rows that cannot be read: such a schedule is defined again when a process of its program
-- starts. Adds schedules that are not paused to their sorted set if they are missing there, and corrects times that are too late.
local function repair_schedules()
  if call('EXISTS', SCHEDULES) == 0 then
    if meta[6] then call('HDEL', META, 'schedules', 'schedules_cursor') end
    return
  end
  local from = cursor_of(call('HGET', META, 'schedules_cursor'))
  local scan = call('HSCAN', SCHEDULES, from, 'COUNT', 64)
  for i = 1, #scan[2], 2 do
    local name, row = scan[2][i], scan[2][i + 1]
    local needs = byte(row, SCHEDULE_NEEDS)
    local is_valid = #name <= 64 and string.find(name, '^[%w._:/-]+$')
    local is_readable = #row >= SCHEDULE_BODY - 1 and (needs == 1 or needs == 2) and is_valid
    local key = schedule_times(is_readable and needs or 1)
    local time = is_readable and number_at('>I6', row, SCHEDULE_TIME) or 0
    if not is_readable then
      call('HDEL', SCHEDULES, name)
      remove_times(name)
      record_repair('the row of a schedule cannot be read: ' .. name, row)
    elseif time > 0 then
      local hand_out = call('ZSCORE', key, name)
      if not hand_out then record_repair('a schedule was in no sorted set, and is handed out again: ' .. name) end
      -- A time that is too late was written while the clock was ahead.
      local is_late = hand_out and tonumber(hand_out) > math.max(time, now + HAND_OUT_INTERVAL)
      if not hand_out or is_late then call('ZADD', key, time, name) end
    end
  end
  if scan[1] ~= from then call('HSET', META, 'schedules_cursor', scan[1]) end
  save_first_hand_outs()
end
