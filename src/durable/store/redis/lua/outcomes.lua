-- Collects the outcomes of tasks that no longer run, and writes them as one transaction.
--
-- A row of `errors` contains the time of the first failure in 6 bytes and, for each of the last attempts, the oldest first: attempt
-- number 4, time of the failure 6, duration of the run in milliseconds, or NO_RUN_TIME, 4, length of the error 2, error.
--
-- Needs: transaction, entry, alive_row, lists, queues, notifications, progress, steps, children, alive_tail, store_time, expiry_bins.
-- Reads: epoch, tombstones.
-- Undo: outcomes.
-- Defines: make_outcomes.
--
-- Each run of a script creates its functions. Those of this part are rarely needed, so `make_outcomes()` creates them on demand, and
-- returns them in a table.
local function make_outcomes()
  -- Fields of `collected`, the outcomes that one transaction writes:
  --
  -- ids, rows, flags -> the tasks, their rows in `running`, and their pairs in `cancel`
  -- ended, alive, states -> tasks that have ended, their pairs in `alive`, and their states
  -- results, delayed, due, dead, died, errors, quarantined -> what is written to these keys
  -- requeued -> entries that are added at the heads of lists
  -- removed_due -> scores and members that are removed from `due`
  -- failed, errors_before, cleared_errors -> tasks whose errors change, their rows or false, and those without errors now
  -- payload_ids -> tasks whose payloads are removed
  -- gone, became_dead -> sets of the tasks that have ended, and of those that became dead letters
  -- notes -> notes of children that have ended: see `children.lua`
  -- permits -> tasks that hold permits, by queue, and by queue and group, or nil
  -- waits -> changed rows of `steps:<id>` that say for how many steps a task waits: `id`, `key` and `row`. They are not undone: they have
  --   no effect on a task that is not delayed
  -- holds -> groups that are held: `queue`, `group` and the time `till` which
  -- counts -> events, by name
  -- damage_count, last_damage, evidence -> rows that are missing or unreadable
  local function new_outcomes()
    expiry_bins = {}
    return {
      undo = 'outcomes', ids = {}, rows = {}, flags = {}, ended = {}, alive = {}, states = {}, results = {}, delayed = {}, due = {},
      dead = {}, died = {}, holds = {}, waits = {}, requeued = {}, quarantined = {}, removed_due = {}, payload_ids = {}, counts = {},
      failed = {}, errors = {}, errors_before = {}, cleared_errors = {}, damage_count = 0, evidence = {}, gone = {},
      became_dead = {}, notes = {},
    }
  end

  local function tally(collected, what) collected.counts[what] = (collected.counts[what] or 0) + 1 end

  -- Records that a task has ended. Clients that await a dead task request its status, since it may have been replayed.
  local function finish(collected, id, entry, task_state, row, reason, error)
    local parent = row and parent_in_row(row) or parent_in(entry, 0)
    -- A parent that was cancelled before is not told. A dead letter keeps its steps.
    if parent ~= '' and (not collected.gone[parent] or collected.became_dead[parent]) then
      children().add_note(collected.notes, id, parent, reason and children().end_of_dead(reason, error) or 'c')
    end
    collected.gone[id] = true
    collected.ended[#collected.ended + 1], collected.states[#collected.ended + 1] = id, task_state
    collected.alive[#collected.alive + 1] = id
    collected.alive[#collected.alive + 1] = row or alive_row(entry, 0)
    notify(sub(entry, ENTRY_CLIENT, ENTRY_CLIENT_END), id, task_state)
  end

  -- Returns the row of a task in `errors`, which is about to change, or false.
  local function errors_of(collected, id, entry)
    local row = has_errors(byte(entry, ENTRY_FLAGS)) and call('HGET', ERRORS, id)
    collected.failed[#collected.failed + 1], collected.errors_before[#collected.failed + 1] = id, row
    return row
  end

  -- Adds the error of an attempt, and keeps the last of the earlier ones. Returns the entry with the flag that records it.
  local function add_error(collected, id, entry, error, took)
    local row, starts, at = errors_of(collected, id, entry) or '', {}, 7
    if #row < 6 then row = pack('>I6', now) end
    while at + 15 <= #row do
      starts[#starts + 1] = at
      at = at + 16 + number_at('>I2', row, at + 14)
    end
    if #starts >= MAX_ERRORS then row = sub(row, 1, 6) .. sub(row, starts[#starts - MAX_ERRORS + 2]) end
    collected.errors[#collected.errors + 1] = id
    collected.errors[#collected.errors + 1] = row .. pack('>I4I6', number_at('>I4', entry, ENTRY_FAILURES) + 1, now) .. took .. pack('>I2', #error) .. error
    local flags = byte(entry, ENTRY_FLAGS)
    return sub(entry, 1, ENTRY_FLAGS - 1) .. char(has_errors(flags) and flags or flags + 4) .. sub(entry, ENTRY_FLAGS + 1)
  end

  -- Removes the errors of a task, and sets the numbers of its failures, crashes and lost claims to 0. Returns the new entry.
  local function forget_errors(collected, id, entry)
    if errors_of(collected, id, entry) then collected.cleared_errors[#collected.cleared_errors + 1] = id end
    local flags = byte(entry, ENTRY_FLAGS)
    return sub(entry, 1, ENTRY_FAILURES - 1) .. pack('>I4I2I2', 0, 0, 0) .. sub(entry, ENTRY_READY_AT, ENTRY_FLAGS - 1)
      .. char(has_errors(flags) and flags - 4 or flags) .. sub(entry, ENTRY_FLAGS + 1)
  end

  -- Returns the name of a task, given its entry.
  local function name_in(entry)
    local flags, at = byte(entry, ENTRY_FLAGS), ENTRY_PAYLOAD
    if flags % 4 >= 2 and #entry >= ENTRY_EXTENSION then at = at + 2 + number_at('>I2', entry, ENTRY_PAYLOAD) end
    if flags % 2 == 1 then at = at + number_at('>I4', entry, ENTRY_LENGTH) end
    return sub(entry, at)
  end

  local function cancel(collected, id, entry)
    if errors_of(collected, id, entry) then collected.cleared_errors[#collected.cleared_errors + 1] = id end
    local retention, task_state = number_at('>I6', entry, ENTRY_RETENTION), ''
    if retention > 0 then
      local ids, times = expiry_bin(retention)
      task_state, ids[#ids + 1] = 'c', id
      collected.results[#collected.results + 1] = id
      collected.results[#collected.results + 1] = times .. task_state .. name_in(entry)
    end
    collected.payload_ids[#collected.payload_ids + 1] = id
    tally(collected, 'cancelled')
    finish(collected, id, entry, task_state)
  end

  -- `took` is the duration of the last run, as in the row, or nil if there was none. `row` is the row of `alive`, if it cannot be derived
  -- from the entry.
  local function mark_dead(collected, id, entry, reason, error, took, row)
    collected.dead[#collected.dead + 1] = id
    collected.dead[#collected.dead + 1] = char(reason) .. (took or NO_RUN_TIME) .. pack('>I4', #error) .. error .. entry
    collected.died[#collected.died + 1] = store_time()
    collected.died[#collected.died + 1] = id
    collected.became_dead[id] = true
    finish(collected, id, entry, '', row, reason, error)
  end

  -- Records that a row is missing or unreadable. Its bytes are kept as evidence.
  local function record_damage(collected, error, row)
    collected.damage_count, collected.last_damage = collected.damage_count + 1, error
    collected.evidence[#collected.evidence + 1] = string.format('%.0f %s: ', now, error) .. sub(row, 1, 1024)
  end

  -- Ends a task of which a part is lost. If the task was alive, it becomes a dead letter with an entry of what is known.
  local function mark_damaged(collected, id, error, rest)
    record_damage(collected, error, rest or id)
    local alive = call('HGET', ALIVE, id)
    if not alive then return end
    local row = alive .. string.rep('\0', ALIVE_KIND_END)
    local entry = id .. sub(row, 1, ALIVE_RETENTION_END) .. string.rep('\0', 16) .. sub(row, ALIVE_KIND, ALIVE_KIND_END) .. string.rep('\0', 5)
    tally(collected, 'ended_apart')
    mark_dead(collected, id, entry, DAMAGED, error, nil, alive)
  end

  -- Counts rows that were recently found to be missing or unreadable.
  local function count_damage(found, error, evidence)
    local before = call('HMGET', META, 'damaged', 'damaged_at')
    local is_recent = math.abs(now - (tonumber(before[2] or '0') or 0)) < DAMAGE_REPORT_TIME
    if is_recent then found = found + (tonumber(before[1] or '0') or 0) end
    call('HSET', META, 'damaged', found, 'damaged_at', now, 'trouble', error)
    if #evidence == 0 then return end
    call('LPUSH', DAMAGE, unpack(evidence))
    call('LTRIM', DAMAGE, 0, 99)
  end

  local function delay(collected, id, entry, due)
    collected.delayed[#collected.delayed + 1] = id
    collected.delayed[#collected.delayed + 1] = entry
    collected.due[#collected.due + 1] = due
    collected.due[#collected.due + 1] = id
  end

  local function requeue(collected, id, entry)
    collected.requeued[#collected.requeued + 1] = entry
    if is_quarantined(entry) then collected.quarantined[#collected.quarantined + 1] = id end
  end

  -- Compares ids as numbers, since Lua compares strings by the server's locale.
  local function by_id(a, b)
    if a[1] ~= b[1] then return a[1] > b[1] end
    if a[2] ~= b[2] then return a[2] > b[2] end
    return a[3] > b[3]
  end

  -- Sorts entries by descending id, so that they are in the order of their ids once each was added at the head.
  local function sort_entries(entries)
    local order = {}
    for i, entry in ipairs(entries) do
      order[i] = { number_at('>I6', entry, 1), number_at('>I6', entry, 7), number_at('>I4', entry, 13), entry }
    end
    table.sort(order, by_id)
    for i = 1, #order do entries[i] = order[i][4] end
  end

  local function write_all(command, key, some)
    if #some > 0 then call(command, key, unpack(some)) end
  end

  -- The last write adds tasks to lists. Until then, each write can be undone.
  local function write_collected(collected)
    write_bins()
    for _, it in ipairs(collected.waits) do
      if call('HEXISTS', STEPS, it.id) == 0 then add_to_steps(it.id, 0) end
      local key = it.key
      call('HSET', key, '', it.row)
    end
    write_all('HSET', ERRORS, collected.errors)
    write_all('HDEL', ERRORS, collected.cleared_errors)
    write_all('HSET', NOTES, collected.notes)
    write_all('HSET', RESULTS, collected.results)
    write_all('HSET', DELAYED, collected.delayed)
    write_all('ZADD', DUE, collected.due)
    write_all('HSET', DEAD, collected.dead)
    write_all('ZADD', DIED, collected.died)
    for i = 2, #collected.removed_due, 2 do call('ZREM', DUE, collected.removed_due[i]) end
    for i = 1, #collected.flags, 2 do call('HDEL', CANCEL, collected.flags[i]) end
    write_all('HDEL', ALIVE, collected.ended)
    write_all('HDEL', RUNNING, collected.ids)
    for _, it in ipairs(collected.holds) do groups().hold(it.queue, it.group, it.till) end
    if collected.permits then queues().take_permits(collected.permits) end
    any_quarantined = any_quarantined or #collected.quarantined > 0
    write_all('SADD', QUARANTINED, collected.quarantined)
    lists().push('LPUSH', collected.bundles)
  end

  -- Writes the outcomes as a transaction of this name.
  local function write_transaction(name, collected)
    sort_entries(collected.requeued)
    collected.bundles = lists().at_the_head(collected.requeued)
    for _, row in ipairs(collected.rows) do
      if (byte(row, RUNNING_FLAGS) or 0) % 4 >= 2 then
        collected.permits = queues().permits_of(collected.ids, collected.rows)
        break
      end
    end
    if #collected.notes > 0 then collected.notes = children().new_notes(collected.notes) end
    state.name, state.transaction = name, collected
    write_collected(collected)
    commit(name)
    if #collected.notes > 0 then children().tell_parents(collected.notes) end
    for _, bundle in ipairs(collected.bundles) do state.pushed[#state.pushed + 1] = bundle end
    for what, n in pairs(collected.counts) do count(what, n) end
    if collected.damage_count > 0 then pcall(count_damage, collected.damage_count, collected.last_damage, collected.evidence) end
    write_all('HDEL', PAYLOADS, collected.payload_ids)
    for i = 2, #collected.removed_due, 2 do call('HDEL', DELAYED, collected.removed_due[i]) end
    remove_progress(collected.ended)
    -- A dead letter keeps its steps. These tasks were cancelled.
    remove_steps(collected.payload_ids)
    notify_watchers(collected.ended, collected.states)
  end

  return {
    begin = new_outcomes, tally = tally, cancel = cancel, mark_dead = mark_dead, delay = delay,
    mark_damaged = mark_damaged, add_error = add_error, forget_errors = forget_errors, record_damage = record_damage,
    count_damage = function(...) pcall(count_damage, ...) end, requeue = requeue, write = write_transaction,
  }
end
