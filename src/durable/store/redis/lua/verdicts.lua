-- Applies verdicts. The completed tasks of a claim are one transaction, and so are those with other verdicts. Those of several small claims
-- are one transaction, too: each claim that was pushed has one task, and a transaction for each of them would cost several times as much.
--
-- Needs: session_activity, transaction, entry, alive_row, queues, notifications, progress, steps, children, expiry_bins, outcomes, claims.
-- Undo: done.
-- Defines: refused, take_verdicts.
--
-- The arguments are those of `turn.lua`:
--
-- ARGV[3]    -> client id
-- ARGV[14..] -> the parts of the verdicts: see `turn.lua`
local refused, position = state.refused or {}, 0
state.refused = refused
-- `true` if there are requests to cancel tasks. Usually none of these four keys exists.
local flagged = false
if call('EXISTS', CANCEL, QUARANTINED, WATCHERS, PROGRESS) > 0 then
  flagged = call('EXISTS', CANCEL) == 1
  any_quarantined = call('EXISTS', QUARANTINED) == 1
else
  has_watchers, has_progress = false, false
end

-- Returns the rows of the tasks of claims in `running`, and the number of tasks that are held. Sets `held`, the number of those of
-- each claim. The row of a task that its claim does not hold is false, and its verdict is refused. So is the verdict for an unreadable
-- row, until the claim is reaped.
local function held_rows(claims, first, n)
  local rows, held, i = call('HMGET', RUNNING, unpack(ARGV, first, first + n - 1)), 0, 0
  for _, claim in ipairs(claims) do
    local epoch, before = claim.epoch, held
    for _ = 1, claim.n do
      i = i + 1
      local row = rows[i]
      if row and sub(row, 1, RUNNING_EPOCH_END) == epoch and #row >= RUNNING_PAYLOAD - 1 then
        held = held + 1
      else
        rows[i] = false
        refused[#refused + 1] = position + i
      end
    end
    claim.held = held - before
  end
  position = position + n
  return rows, held
end

-- Subtracts the tasks that have ended from the numbers that the claims hold, and deletes the claims that hold none. If such a number cannot
-- be read, the claim ends with its lease.
local function end_held(claims)
  local fields, over = {}, {}
  for i, claim in ipairs(claims) do fields[i] = claim.epoch .. 'n' end
  local is_read, numbers = pcall(call, 'HMGET', CLAIMS, unpack(fields))
  if not is_read then return end
  for i, claim in ipairs(claims) do
    local n = numbers[i]
    local is_over = not n or (string.find(n, '^-?%d+$') and tonumber(n) or math.huge) <= claim.held
    if claim.held > 0 and is_over then over[#over + 1] = claim.epoch end
    if claim.held > 0 and not is_over then pcall(call, 'HINCRBY', CLAIMS, fields[i], -claim.held) end
  end
  delete_claims(over)
end

-- Removes rows that do no harm if they stay for a while.
local function clean_up(claims, ids_done, payload_ids, states)
  end_held(claims)
  if #payload_ids > 0 then call('HDEL', PAYLOADS, unpack(payload_ids)) end
  if #states > 0 then
    remove_progress(ids_done)
    remove_steps(ids_done)
    notify_watchers(ids_done, states)
  end
end

-- Writes the completed tasks of claims. Their entries are read within the rows, without a copy. The process that sends the
-- verdicts knows them, so it is not notified.
local function apply_done(name, claims, first, n)
  local rows, held = held_rows(claims, first, n)
  if held == 0 then return end
  expiry_bins = {}
  local ids_done, payload_ids, failed, results, states, notes = {}, {}, {}, {}, {}, nil
  -- The numbers of tasks, results and ids in the bin so far. `#` searches for the end of a table, and this loop has most of the cost of a
  -- large turn.
  local done, kept, in_bin = 0, 0, 0
  local client, is_notified, retention, ids, times, is_output_sent, any_queued
  for i = 1, n do
    local row = rows[i]
    if row then
      local id, state_text = ARGV[first + i - 1], ''
      done = done + 1
      ids_done[done] = id
      -- Neighbours usually belong to the same client.
      if sub(row, RUNNING_CLIENT, RUNNING_CLIENT_END) ~= client then
        client = sub(row, RUNNING_CLIENT, RUNNING_CLIENT_END)
        is_notified = client ~= ARGV[3] and is_awaiting(client)
      end
      local flags = byte(row, RUNNING_FLAGS)
      -- Usually the entry contains the payload, and there are no errors.
      if flags ~= 1 then
        if flags % 2 == 0 then payload_ids[#payload_ids + 1] = id end
        if has_errors(flags) then failed[#failed + 1] = id end
        local extension = flags % 4 >= 2 and byte(row, RUNNING_EXTENSION) or 0
        any_queued = any_queued or extension % 2 == 1
        if extension % 16 >= 8 then
          notes = notes or {}
          children().add_note(notes, id, parent_in(row, RUNNING_EPOCH_END), children().end_of_done(ARGV[first + n + i - 1]))
        end
      end
      -- Neighbours are likely to have the same retention.
      if sub(row, RUNNING_RETENTION, RUNNING_RETENTION_END) ~= retention then
        retention = sub(row, RUNNING_RETENTION, RUNNING_RETENTION_END)
        local millis = number_at('>I6', retention)
        if millis == 0 then ids = nil else
          ids, times = expiry_bin(millis)
          in_bin = #ids
        end
        -- After a shorter retention, a new task may have the id when the message arrives.
        is_output_sent = millis >= 60000
      end
      if ids then
        -- The output may be large, so it is copied only once.
        local output = ARGV[first + n + i - 1]
        in_bin = in_bin + 1
        ids[in_bin] = id
        results[kept + 1], results[kept + 2] = id, times .. 'd' .. output
        kept = kept + 2
        -- The state is a copy of the output, which is of no use if nobody gets a message.
        if is_output_sent and (is_notified or has_watchers ~= false) and #output < MAX_NOTIFIED_BYTES then state_text = 'd' .. output end
      end
      states[done] = state_text
      if is_notified then notify(client, id, state_text) end
    end
  end
  if notes then notes = children().new_notes(notes) end
  local flags = flagged and call('HMGET', CANCEL, unpack(ids_done))
  local errors = #failed > 0 and call('HMGET', ERRORS, unpack(failed))
  local permits = any_queued and queues().permits_of(ids_done, rows) or nil
  state.transaction = {
    undo = 'done', ids = ids_done, rows = rows, results = results, flags = flags, failed = failed, errors = errors, permits = permits,
    alive_row = alive_row, notes = notes,
  }
  write_bins()
  if notes and #notes > 0 then call('HSET', NOTES, unpack(notes)) end
  if kept > 0 then call('HSET', RESULTS, unpack(results)) end
  if flags then call('HDEL', CANCEL, unpack(ids_done)) end
  if errors then call('HDEL', ERRORS, unpack(failed)) end
  call('HDEL', ALIVE, unpack(ids_done))
  call('HDEL', RUNNING, unpack(ids_done))
  if permits then queues().take_permits(permits) end
  commit(name)
  count('done', held)
  if notes then children().tell_parents(notes) end
  clean_up(claims, ids_done, payload_ids, states)
end

-- Returns a function that writes the other verdicts of a claim. The verdicts are described in `turn.lua`.
local function make_apply_others()
  local outcomes = make_outcomes()

  local function delay(collected, id, entry, after, failures)
    entry = sub(entry, 1, ENTRY_FAILURES - 1) .. pack('>I4', number_at('>I4', entry, ENTRY_FAILURES) + failures)
      .. sub(entry, ENTRY_CRASHES, ENTRY_READY_AT - 1) .. pack('>I6', now + after) .. sub(entry, ENTRY_KIND)
    outcomes.delay(collected, id, entry, now + after)
  end

  -- Has a delayed task wait for this number of steps, which the text describes, or for none if it is 0.
  local function wait_for_steps(collected, id, target, waits_for)
    if not meta[8] and target == 0 then return end
    local key = STEPS .. ':' .. id
    local is_read, row = unless_of_other_type(call, 'HGET', key, '')
    if not is_read then return end
    row = row or ''
    local new = pack('>I4', target) .. sub(row .. string.rep('\0', 8), 5, 8) .. waits_for
    local waits = #row >= 8 and number_at('>I4', row) or 0
    if waits ~= target or target > 0 and row ~= new then collected.waits[#collected.waits + 1] = { id = id, key = key, row = new } end
  end

  -- Delays a task before its next attempt. A signal does not shorten this delay.
  local function delay_again(collected, id, entry, after, failures)
    wait_for_steps(collected, id, 0, '')
    delay(collected, id, entry, after, failures)
  end

  -- Suspends a task, whose failures, crashes and lost claims are forgotten. If it has as many steps as it waits for, it is due now. If its
  -- steps cannot be read, so it is, too: its next run looks for them, and fails.
  local function suspend(collected, id, entry, after, until_steps)
    local target, waits_for = string.match(until_steps, '^(%d+) ?(.*)$')
    local is_reached = false
    if target then
      local is_read, n = unless_of_other_type(steps_of, id)
      is_reached = not is_read or n >= tonumber(target)
    end
    if is_reached or not target then target, waits_for = 0, '' end
    wait_for_steps(collected, id, tonumber(target), waits_for)
    entry = outcomes.forget_errors(collected, id, entry)
    delay(collected, id, entry, is_reached and 0 or after, 0)
  end

  local function apply_other(collected, id, entry, flag, what, one, two, took)
    local then_what, wait = string.match(what, '^(%S+) (%d+)$')
    local group = wait and queues().group_of(entry, 0) or ''
    if group ~= '' then
      collected.holds[#collected.holds + 1] = { queue = queues().queue_of(entry, 0), group = group, till = now + wait }
    end
    what = then_what or what
    if flag then
      outcomes.cancel(collected, id, entry)
    elseif what == 'retry' then
      outcomes.tally(collected, 'retried')
      delay_again(collected, id, outcomes.add_error(collected, id, entry, two, took), one, 1)
    elseif what == 'snooze' then
      outcomes.tally(collected, 'snoozed')
      delay_again(collected, id, entry, one, 0)
    elseif what == 'suspend' then
      outcomes.tally(collected, 'snoozed')
      suspend(collected, id, entry, one, two)
    elseif what == 'release' then
      outcomes.tally(collected, 'released')
      outcomes.requeue(collected, id, entry)
    else
      -- The first character of the verdict is the number of failures that it adds.
      local failures = number_at('>I4', entry, ENTRY_FAILURES) + tonumber(sub(what, 1, 1))
      entry = sub(entry, 1, ENTRY_FAILURES - 1) .. pack('>I4', failures) .. sub(entry, ENTRY_CRASHES)
      outcomes.tally(collected, 'died')
      if tonumber(one) == DAMAGED then outcomes.record_damage(collected, two, entry) end
      outcomes.mark_dead(collected, id, entry, tonumber(one), two, took)
    end
  end

  return function(name, claims, first, n)
    local rows, held = held_rows(claims, first, n)
    if held == 0 then return end
    local collected = outcomes.begin()
    local flags = flagged and call('HMGET', CANCEL, unpack(ARGV, first, first + n - 1)) or {}
    for i = 1, n do
      if rows[i] then
        local id, at = ARGV[first + i - 1], first + n + 4 * (i - 1)
        collected.ids[#collected.ids + 1], collected.rows[#collected.ids + 1] = id, rows[i]
        if flags[i] then collected.flags[#collected.flags + 1], collected.flags[#collected.flags + 2] = id, flags[i] end
        apply_other(collected, id, sub(rows[i], RUNNING_ENTRY), flags[i], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
      end
    end
    outcomes.write(name, collected)
    clean_up(claims, collected.ids, {}, {})
  end
end

-- Applies this number of parts of the verdicts, beginning at the argument `at`. Skips the transactions that were
-- committed, or have failed. Returns `true` if all were applied.
local function take_verdicts(session, at, parts)
  local apply_others, total, taken = nil, 0, 0
  local function apply(name, write, claims, first, n)
    total = total + 1
    if committed[name] or skipped[name] then
      position = position + n
    else
      state.name = name
      write(name, claims, first, n)
      committed[name] = true
    end
    if committed[name] then taken = taken + 1 end
  end
  for i = 1, parts do
    local claims, n, epoch = {}, 0, nil
    for c = 1, tonumber(ARGV[at]) do
      epoch = ARGV[at + 2 * c - 1]
      claims[c] = { epoch = epoch, n = tonumber(ARGV[at + 2 * c]) }
      n = n + claims[c].n
      confirm_delivery(session, epoch)
    end
    at = at + 1 + 2 * #claims
    if n > 0 then apply(2 * i, apply_done, claims, at, n) end
    at = at + 2 * n
    n = tonumber(ARGV[at])
    if n > 0 then
      apply_others = apply_others or make_apply_others()
      apply(2 * i + 1, apply_others, { { epoch = epoch, n = n } }, at + 1, n)
    end
    at = at + 1 + 5 * n
  end
  state.is_partial = state.is_partial or taken > 0 and taken < total
  return taken == total
end
