-- Named queues: their limits, and the permits of their running tasks. See `queue/settings.rs` for the limits, and
-- `queue/priority.rs` for the order of priorities.
--
-- Fields of `queues`:
--
-- s<queue> -> settings: flags 1: 1, the queue is paused; 2, tasks of it have had groups; maximum number of running tasks, or 0, 4; interval
--   of the rate in microseconds, or 0, 6; burst 4; revision 4; maximum number of running tasks of each group, or 0, 4; quantum of groups 4
-- r<queue> -> time up to which the rate is used, in microseconds
-- p<queue> -> number of tasks of other priorities that have started since Normal had its share 6, and since Low had it 6. The
--   default queue, which has no name, has only this field.
--
-- A running task of a named queue holds a permit: its id is in the set `permits:<queue>`. A task with a group holds a second one: see
-- `groups.lua`.
--
-- Needs no other part.
-- Defines: groups, queues.
--
-- `groups` stays nil unless the script needs `groups.lua`. `queues()` returns its functions in a table.
local made_queues
local groups
local function queues()
  if made_queues then return made_queues end

  local rows = {}

  -- Returns the settings of a queue. If they cannot be read, the queue is paused until maintenance repairs them, so no limit is
  -- exceeded.
  local function row_of(queue)
    if not rows[queue] then
      local row = call('HGET', QUEUES, 's' .. queue)
      if not row then row = pack('>I1I4I6I4I4I4I4', 0, 0, 0, 0, 0, 0, 1)
      elseif #row ~= SETTINGS_END then row = pack('>I1I4I6I4I4I4I4', 3, 0, 0, 0, 0, 0, 1) end
      rows[queue] = row
    end
    return rows[queue]
  end

  -- Returns 1 if a queue is paused, its maximum number of running tasks, and the interval and the burst of its rate.
  local function settings_of(queue)
    local flags, max_running, interval, burst = number_at('>I1I4I6I4', row_of(queue))
    return flags % 2, max_running, interval, burst
  end

  -- Returns `true` if tasks of a queue may have groups.
  local function is_grouped(queue) return byte(row_of(queue)) >= 2 end

  -- Returns the maximum number of running tasks of each group of a queue, or 0, and the quantum of its groups.
  local function group_settings(queue)
    local max_running, quantum = number_at('>I4I4', row_of(queue), SETTINGS_GROUPS)
    return max_running, quantum
  end

  -- Records that tasks of a queue may have groups. `undo_with` has the write undone with the transaction.
  local function mark_grouped(queue, undo_with)
    if is_grouped(queue) then return end
    local before = call('HGET', QUEUES, 's' .. queue)
    local row = row_of(queue)
    row = char(byte(row) + 2) .. sub(row, 2)
    undo_with(function(attempt)
      if before then attempt('HSET', QUEUES, 's' .. queue, before) else attempt('HDEL', QUEUES, 's' .. queue) end
    end)
    call('HSET', QUEUES, 's' .. queue, row)
    rows[queue] = row
  end

  -- Returns how many tasks may start if the rate of the queue does not matter.
  local function free_permits(queue, paused, max_running)
    if paused == 1 then return 0 end
    local key = PERMITS .. ':' .. queue
    return max_running > 0 and math.max(max_running - call('SCARD', key), 0) or math.huge
  end

  -- Returns `true` if a task may start, if the rate of the queue does not matter.
  local function has_permit(queue) return free_permits(queue, settings_of(queue)) > 0 end

  -- Returns the time up to which a rate is used. If it is further ahead than the burst, the clock was put back.
  local function used_until(queue, interval, burst)
    local used = tonumber(call('HGET', QUEUES, 'r' .. queue) or '0') or 0
    return math.max(micros, math.min(used, micros + interval * burst)), used
  end

  -- Returns how many tasks may start, and how many milliseconds it takes until one may start if only the rate prevents it.
  local function room(queue)
    local paused, max_running, interval, burst = settings_of(queue)
    local free = free_permits(queue, paused, max_running)
    if interval == 0 or free == 0 then return free, nil end
    local used, stored = used_until(queue, interval, burst)
    if stored > used then call('HSET', QUEUES, 'r' .. queue, string.format('%.0f', used)) end
    local left = interval * burst - (used - micros)
    local available = math.floor(left / interval)
    return math.min(free, available), available == 0 and math.ceil((interval - left) / 1000) or nil
  end

  -- Returns the time up to which the rate is used, before and after some tasks start; nil if the queue has no rate.
  local function use_rate(queue, n)
    local _, _, interval, burst = settings_of(queue)
    if interval == 0 then return nil end
    local used, stored = used_until(queue, interval, burst)
    return { string.format('%.0f', stored), string.format('%.0f', used + interval * n) }
  end

  -- Returns the numbers of tasks of other priorities that have started since Normal and Low had their shares.
  local function priority_turns(queue)
    local row = call('HGET', QUEUES, 'p' .. queue)
    if not row or #row ~= 12 then return 0, 0, row end
    local normal, low = number_at('>I6I6', row)
    return math.min(normal, MAX_SHARES * NORMAL_PERIOD), math.min(low, MAX_SHARES * LOW_PERIOD), row
  end

  -- Returns the field p<queue> before and after some tasks of a priority start.
  local function count_priority(queue, priority, n)
    local normal, low, row = priority_turns(queue)
    if priority == 'normal' then normal = math.max(normal - n * NORMAL_PERIOD, 0)
    else normal = math.min(normal + n, MAX_SHARES * NORMAL_PERIOD) end
    if priority == 'low' then low = math.max(low - n * LOW_PERIOD, 0)
    else low = math.min(low + n, MAX_SHARES * LOW_PERIOD) end
    return { row or '', pack('>I6I6', normal, low) }
  end

  -- Returns the queue of the task of an entry that begins behind the first `before` bytes of a row. The default queue has no
  -- name.
  local function queue_of(row, before)
    if #row < before + ENTRY_QUEUE_LENGTH or byte(row, before + ENTRY_FLAGS) % 4 < 2 or byte(row, before + ENTRY_EXTENSION) % 2 == 0 then
      return ''
    end
    local at, length = before + ENTRY_QUEUE, byte(row, before + ENTRY_QUEUE_LENGTH)
    return sub(row, at, at + length - 1)
  end

  -- Returns the group of the task of such an entry, and the queue. Without a group, both are empty.
  local function group_of(row, before)
    if #row < before + ENTRY_QUEUE_LENGTH or byte(row, before + ENTRY_FLAGS) % 4 < 2 or byte(row, before + ENTRY_EXTENSION) % 8 < 4 then
      return '', ''
    end
    local from = before + ENTRY_QUEUE
    local at = from + byte(row, before + ENTRY_QUEUE_LENGTH)
    return sub(row, at + 1, at + (byte(row, at) or 0)), sub(row, from, at - 1)
  end

  -- Returns the ids of the tasks that hold permits, by queue, and by queue and group. `rows` has their rows in `running`, in the order of
  -- the ids, and false for others.
  local function permits_of(ids, rows)
    local permits, n = {}, 0
    local function add(holder, id)
      local of = permits[holder]
      if of then of[#of + 1] = id else permits[holder] = { id } end
    end
    for _, row in ipairs(rows) do
      if row then
        n = n + 1
        local group, queue = group_of(row, RUNNING_ENTRY - 1)
        if group ~= '' then add(queue .. '\0' .. group, ids[n]) else queue = queue_of(row, RUNNING_ENTRY - 1) end
        if queue ~= '' then add(queue, ids[n]) end
      end
    end
    return permits
  end

  -- Takes permits back from tasks that stop running. Later, workers are woken for them.
  local function take_permits(permits)
    state.freed = state.freed or {}
    for holder, ids in pairs(permits) do
      local key = PERMITS .. ':' .. holder
      call('SREM', key, unpack(ids))
    end
    local freed = {}
    for holder in pairs(permits) do
      local queue, group = string.match(holder, '^(%Z+)%z(.+)$')
      if not queue then state.freed[holder] = true
      else
        freed[queue] = freed[queue] or {}
        freed[queue][#freed[queue] + 1] = group
      end
    end
    -- This happens even if groups have no limit: some may still wait because of an earlier one, until a change of the limit reaches them.
    for queue, names in pairs(freed) do groups().unblock(queue, names) end
  end

  made_queues = {
    has_permit = has_permit, room = room, use_rate = use_rate, priority_turns = priority_turns, count_priority = count_priority,
    queue_of = queue_of, group_of = group_of, is_grouped = is_grouped, group_settings = group_settings, mark_grouped = mark_grouped, permits_of = permits_of, take_permits = take_permits,
  }
  return made_queues
end
