-- Determines when schedules are handed out. See `store/schedules.rs`, and `layout.lua` for the rows of `schedules`.
--
-- A schedule that is not paused is in the sorted set `schedule_times:<needs>`, with the time at which it is handed out next.
-- `needs` is the bit of the builds that compute its ticks: 1 for intervals, 2 for cron expressions. The field `schedules` of `meta`
-- contains the first time in each of these sets, or 0 if the set is empty, in 6 bytes each. The field is missing if there is no
-- schedule. Turns return it, so that workers know when to ask for due schedules. A time in the field may be too early, but is never
-- too late; the sets are authoritative. While a schedule is being changed, the field is empty. If it stays empty because a command
-- fails, workers ask for due schedules at once, and `hand_out.lua` writes the field again.
--
-- Needs no other part.
-- Reads: schedules.
-- Defines: schedule_times, first_hand_out_of, save_first_hand_outs, first_of_builds, first_hand_out.

local function schedule_times(needs) return SCHEDULE_TIMES .. ':' .. needs end

-- Returns the first time in the sorted set of a build.
local function first_hand_out_of(needs)
  local key = schedule_times(needs)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 'inf')
end

-- Writes the field of `meta` again. Returns the times in it.
local function save_first_hand_outs()
  local every, cron = first_hand_out_of(1), first_hand_out_of(2)
  if math.min(every, cron) == math.huge and call('EXISTS', SCHEDULES) == 0 then
    call('HDEL', META, 'schedules')
  else
    -- A garbled time may be 0 or below.
    local field = pack('>I6I6', every < math.huge and math.max(every, 1) or 0, cron < math.huge and math.max(cron, 1) or 0)
    if field ~= meta[6] then call('HSET', META, 'schedules', field) end
  end
  return every, cron
end

-- Returns the earlier of the two times, or only the one whose schedules these builds compute.
local function first_of_builds(computes, every, cron)
  return math.min(computes % 2 == 1 and every or math.huge, computes >= 2 and cron or math.huge)
end

-- Returns the time at which the next schedule is handed out, among those whose ticks these builds compute.
local function first_hand_out(computes)
  if #meta[6] ~= 12 then
    -- The first write must be one that a server without memory accepts; it then accepts the others.
    local key = schedule_times(1)
    call('ZREM', key, '')
    return first_of_builds(computes, save_first_hand_outs())
  end
  local every, cron = number_at('>I6I6', meta[6])
  return first_of_builds(computes, every > 0 and every or math.huge, cron > 0 and cron or math.huge)
end
