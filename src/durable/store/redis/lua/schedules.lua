-- Determines when schedules are handed out, and hands them out. See `store/schedules.rs`, and `layout.lua` for the rows of
-- `schedules`.
--
-- A schedule that is not paused is in the sorted set `schedule_times:<needs>`, with the time at which it is handed out next.
-- `needs` is the bit of the builds that compute its ticks: 1 for intervals, 2 for cron expressions. The field `schedules` of
-- `meta` contains the first time in each of these sets, or 0 if the set is empty, in 6 bytes each. The field is missing if there
-- is no schedule. A turn reads only this field unless a schedule is due. A time in the field may be too early, but is never too
-- late; the sets are authoritative. While a schedule is being changed, the field is empty. If it stays empty because a command
-- fails, the next turn writes it again.
--
-- Reads: schedules.
local made_schedules
local function schedules()
  if made_schedules then return made_schedules end

  local function times_of(needs) return SCHEDULE_TIMES .. ':' .. needs end

  -- Returns the first time in the sorted set of a build.
  local function first_in(needs)
    local key = times_of(needs)
    return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 'inf')
  end

  -- Writes the field of `meta` again. Returns the times in it.
  local function save_first()
    local every, cron = first_in(1), first_in(2)
    if math.min(every, cron) == math.huge and call('EXISTS', SCHEDULES) == 0 then
      call('HDEL', META, 'schedules')
    else
      local field = pack('>I6I6', every < math.huge and every or 0, cron < math.huge and cron or 0)
      if field ~= meta[6] then call('HSET', META, 'schedules', field) end
    end
    return every, cron
  end

  -- Returns the earlier of the two times, of those that these builds compute.
  local function first_of_builds(computes, every, cron)
    return math.min(computes % 2 == 1 and every or math.huge, computes >= 2 and cron or math.huge)
  end

  -- Returns the time at which the next schedule is handed out, of those that these builds compute.
  local function first_time(computes)
    if #meta[6] ~= 12 then return first_of_builds(computes, save_first()) end
    local every, cron = number_at('>I6I6', meta[6])
    return first_of_builds(computes, every > 0 and every or math.huge, cron > 0 and cron or math.huge)
  end

  -- Hands out the due schedules in the sorted set of a build: adds their names and rows to `due`. Removes schedules from the set
  -- that are paused, or whose rows are missing or cannot be read.
  local function hand_out_of(needs, due)
    local key = times_of(needs)
    local names = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, MAX_HAND_OUTS - #due / 2)
    if #names == 0 then return end
    local again, others = {}, {}
    for i, row in ipairs(call('HMGET', SCHEDULES, unpack(names))) do
      if row and #row >= SCHEDULE_BODY - 1 and number_at('>I6', row, SCHEDULE_TIME) > 0 then
        again[#again + 1], again[#again + 2] = now + HAND_OUT_INTERVAL, names[i]
        due[#due + 1], due[#due + 2] = names[i], row
      else
        others[#others + 1] = names[i]
      end
    end
    if #again > 0 then call('ZADD', key, unpack(again)) end
    if #others > 0 then call('ZREM', key, unpack(others)) end
  end

  -- Hands out the due schedules that these builds compute. Returns their names and rows, and the time at which the next schedule is
  -- handed out.
  local function hand_out(computes)
    local first, due = first_time(computes), {}
    if first > now then return due, first end
    if computes % 2 == 1 then hand_out_of(1, due) end
    if computes >= 2 and #due < 2 * MAX_HAND_OUTS then hand_out_of(2, due) end
    return due, first_of_builds(computes, save_first())
  end

  made_schedules = {
    times_of = times_of, first_in = first_in, save_first = save_first, first_time = first_time, hand_out = hand_out,
  }
  return made_schedules
end
