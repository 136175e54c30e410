-- Takes verdicts. What is done in a claim is a unit, and so is what else became of its tasks.
--
-- Needs: unit, entry, notices, results, outcomes, claims.
local refused, told = state.refused or {}, 0
state.refused = refused
-- True if there are requests to cancel tasks. As a rule, none of these three exists.
local flagged = false
if call('EXISTS', CANCEL, QUARANTINED, WATCHERS) > 0 then
  flagged = call('EXISTS', CANCEL) == 1
  any_quarantined = call('EXISTS', QUARANTINED) == 1
else
  watched = false
end
-- Returns the rows of the tasks of a claim in `running`, by their place, and how many are held. Of those that
-- are not held, there is no row, and they are refused. So are those that cannot be read, until they are reaped.
local function held_of(of, first, n)
  local rows, held = call('HMGET', RUNNING, unpack(ARGV, first, first + n - 1)), 0
  for i = 1, n do
    local row = rows[i]
    if row and sub(row, 1, 16) == of and #row > 74 then
      held = held + 1
    else
      rows[i] = false
      refused[#refused + 1] = told + i
    end
  end
  told = told + n
  return rows, held
end

-- Rows that do no harm if they stay for a while.
local function clean_up(of, gone, apart, seen)
  -- The number of held tasks falls. If it cannot be read, the claim ends with its lease.
  local is_counted, left = pcall(call, 'HINCRBY', CLAIMS, of .. 'n', -#gone)
  if is_counted and left <= 0 then drop_claim(of) end
  if #apart > 0 then call('HDEL', PAYLOADS, unpack(apart)) end
  if #seen > 0 then tell_watchers(gone, seen) end
end

-- Tasks that have succeeded. In a row, an epoch of 16 bytes is before the entry, which is not copied here. Whoever
-- takes the verdict knows it: its own process is not told.
local function settle_done(key, of, first, n)
  local rows, held = held_of(of, first, n)
  if held == 0 then return end
  bins = {}
  local gone, apart, failed, kept, seen, own = {}, {}, {}, {}, {}, ARGV[3]
  local retention, ids, over, is_told
  for i = 1, n do
    local row = rows[i]
    if row then
      local id, client, how = ARGV[first + i - 1], sub(row, 33, 40), ''
      gone[#gone + 1] = id
      local flags = byte(row, 71)
      -- As a rule, the payload is in the entry, and there are no errors.
      if flags ~= 1 then
        if flags % 2 == 0 then apart[#apart + 1] = id end
        if has_errors(flags) then failed[#failed + 1] = id end
      end
      -- Neighbours are likely to be kept for as long.
      if sub(row, 41, 46) ~= retention then
        retention = sub(row, 41, 46)
        local millis = number_at('>I6', retention)
        if millis == 0 then ids = nil else ids, over = bin_of(millis) end
        -- What is kept for less may have another life when the message arrives.
        is_told = millis >= 60000
      end
      if ids then
        -- It may be large: so it is copied once.
        local output = ARGV[first + n + i - 1]
        ids[#ids + 1] = id
        kept[#kept + 1] = id
        kept[#kept + 1] = over .. 'd' .. output
        if is_told and #output < MOST_TOLD then how = 'd' .. output end
      end
      seen[#gone] = how
      if client ~= own then tell(client, id, how) end
    end
  end
  local flags = flagged and call('HMGET', CANCEL, unpack(gone))
  local errors = #failed > 0 and call('HMGET', ERRORS, unpack(failed))
  state.unit = {
    undo = 'done', ids = gone, rows = rows, kept = kept, flags = flags, failed = failed, errors = errors,
  }
  write_bins()
  if #kept > 0 then call('HSET', RESULTS, unpack(kept)) end
  if flags then call('HDEL', CANCEL, unpack(gone)) end
  if errors then call('HDEL', ERRORS, unpack(failed)) end
  call('HDEL', ALIVE, unpack(gone))
  call('HDEL', RUNNING, unpack(gone))
  has_effect(key)
  count('done', held)
  clean_up(of, gone, apart, seen)
end

-- What else can become of runs: a word, and what belongs to it.
local function others()
  local outcomes = make_outcomes()

  local function delay(of, id, entry, after, failures)
    entry = sub(entry, 1, 32) .. pack('>I4', number_at('>I4', entry, 33) + failures)
      .. sub(entry, 37, 40) .. pack('>I6', now + after) .. sub(entry, 47)
    outcomes.delayed(of, id, entry, now + after)
  end

  local function settle_other(of, id, entry, flag, what, one, two)
    if flag then
      outcomes.cancelled(of, id, entry)
    elseif what == 'retry' then
      outcomes.tally(of, 'retried')
      delay(of, id, outcomes.failed(of, id, entry, two), one, 1)
    elseif what == 'snooze' then
      outcomes.tally(of, 'snoozed')
      delay(of, id, entry, one, 0)
    elseif what == 'release' then
      outcomes.tally(of, 'released')
      outcomes.first(of, id, entry)
    else
      -- Dead: how many failures that counts for, and the reason.
      local failures = number_at('>I4', entry, 33) + tonumber(sub(what, 1, 1))
      entry = sub(entry, 1, 32) .. pack('>I4', failures) .. sub(entry, 37)
      outcomes.tally(of, 'died')
      if tonumber(one) == DAMAGED then outcomes.found(of, two, entry) end
      outcomes.dead(of, id, entry, tonumber(one), two)
    end
  end

  return function(key, epoch, first, n)
    local rows, held = held_of(epoch, first, n)
    if held == 0 then return end
    local of = outcomes.begin()
    local flags = flagged and call('HMGET', CANCEL, unpack(ARGV, first, first + n - 1)) or {}
    for i = 1, n do
      if rows[i] then
        local id, at = ARGV[first + i - 1], first + n + 3 * (i - 1)
        of.ids[#of.ids + 1], of.rows[#of.ids + 1] = id, rows[i]
        if flags[i] then of.flags[#of.flags + 1], of.flags[#of.flags + 2] = id, flags[i] end
        settle_other(of, id, sub(rows[i], 17), flags[i], ARGV[at], ARGV[at + 1], ARGV[at + 2])
      end
    end
    outcomes.settle(key, of)
    clean_up(epoch, of.ids, {}, {})
  end
end

-- Takes the verdicts of so many claims, beginning at an argument, but for the units that were done, or have failed.
-- Returns whether all were taken.
local function take_verdicts(session, at, claims)
  local settle_others, units, taken = nil, 0, 0
  local function settle(key, how, of, first, n)
    units = units + 1
    if done[key] or skip[key] then
      told = told + n
    else
      state.key = key
      how(key, of, first, n)
      done[key] = true
    end
    if done[key] then taken = taken + 1 end
  end
  for i = 1, claims do
    local of, n = ARGV[at], tonumber(ARGV[at + 1])
    deliver(session, of)
    if n > 0 then settle(2 * i, settle_done, of, at + 2, n) end
    at = at + 2 + 2 * n
    n = tonumber(ARGV[at])
    if n > 0 then
      settle_others = settle_others or others()
      settle(2 * i + 1, settle_others, of, at + 1, n)
    end
    at = at + 1 + 4 * n
  end
  state.is_half = state.is_half or taken > 0 and taken < units
  return taken == units
end
