-- Hands out due schedules.
--
-- Needs: schedules.
-- Reads: schedules.
-- KEYS: NONE, META, SCHEDULES, SCHEDULE_TIMES.
--
-- ARGV[1] -> bits of the builds whose schedules are handed out: see `schedules.lua`
--
-- Output:
-- [1] -> name and row of each schedule
-- [2] -> milliseconds until the next schedule of these builds is handed out, or -1 if there is none
-- [3] -> time in milliseconds since 1970
local computes, due = tonumber(ARGV[1]), {}
local first = meta[6] and first_hand_out(computes) or math.huge

-- Hands out the due schedules in the sorted set of a build: adds their names and rows to `due`. Removes the schedules from the set
-- that do not belong there: those that are paused or need another build, and those whose rows are missing or cannot be read.
local function hand_out_of(needs)
  local key = schedule_times(needs)
  local names = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, MAX_HAND_OUTS - #due / 2)
  if #names == 0 then return end
  local again, others = {}, { '' }
  for i, row in ipairs(call('HMGET', SCHEDULES, unpack(names))) do
    if row and #row >= SCHEDULE_BODY - 1 and byte(row, SCHEDULE_NEEDS) == needs and number_at('>I6', row, SCHEDULE_TIME) > 0 then
      again[#again + 1], again[#again + 2] = now + HAND_OUT_INTERVAL, names[i]
      due[#due + 1], due[#due + 2] = names[i], row
    else
      others[#others + 1] = names[i]
    end
  end
  -- This must be the first write, for the same reason as in `first_hand_out`.
  call('ZREM', key, unpack(others))
  if #again > 0 then call('ZADD', key, unpack(again)) end
end

if first <= now then
  if computes % 2 == 1 then hand_out_of(1) end
  if computes >= 2 and #due < 2 * MAX_HAND_OUTS then hand_out_of(2) end
  first = first_of_builds(computes, save_first_hand_outs())
end
return { due, first < math.huge and math.max(first - now, 0) or -1, now }
