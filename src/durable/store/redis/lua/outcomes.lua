-- Outcomes: what becomes of tasks whose runs are over. They are collected, and written as one unit.
--
-- A row of `errors` has, of each attempt, the oldest first: its number 4, when it failed 6, the length of the error
-- 2, the error.
--
-- Needs: unit, entry, lists, notices, store_time, results.
--
-- Functions are made anew whenever a script runs. These are seldom needed, so they are made only then.
local function make_outcomes()
  -- Fields of outcomes: `ids` of the tasks, their `rows` in `running`, and `flags`, the pairs in `cancel`; `ended`,
  -- ids, and `alive`, their pairs there; pairs and scores that are written; `first`, entries that go back; `failed`,
  -- ids whose errors change, and `before`, their rows, or false.
  local function new_outcomes()
    bins = {}
    return {
      undo = 'outcomes', ids = {}, rows = {}, flags = {}, ended = {}, alive = {}, seen = {}, results = {}, delayed = {}, due = {},
      dead = {}, died = {}, first = {}, quarantined = {}, gone = {}, apart = {}, counts = {},
      failed = {}, errors = {}, before = {}, forgotten = {},
      found = 0, evidence = {},
    }
  end

  local function tally(of, what) of.counts[what] = (of.counts[what] or 0) + 1 end

  -- The task has ended. A dead one may be given another life, so clients that wait for it ask.
  local function has_ended(of, id, entry, seen)
    of.ended[#of.ended + 1], of.seen[#of.ended + 1] = id, seen
    of.alive[#of.alive + 1] = id
    of.alive[#of.alive + 1] = alive_row(entry)
    tell(sub(entry, 17, 24), id, seen)
  end

  -- Returns the row of the errors of a task, which is about to change.
  local function errors_of(of, id, entry)
    local row = has_errors(byte(entry, FLAGS)) and call('HGET', ERRORS, id)
    of.failed[#of.failed + 1], of.before[#of.failed + 1] = id, row
    return row
  end

  -- Keeps the error of an attempt, and of earlier ones the last. Returns the entry with the flag that says so.
  local function has_failed(of, id, entry, error)
    local row, starts, at = errors_of(of, id, entry) or '', {}, 1
    while at + 11 <= #row do
      starts[#starts + 1] = at
      at = at + 12 + number_at('>I2', row, at + 10)
    end
    if #starts >= MAX_ERRORS then row = sub(row, starts[#starts - MAX_ERRORS + 2]) end
    of.errors[#of.errors + 1] = id
    of.errors[#of.errors + 1] = row .. pack('>I4I6I2', number_at('>I4', entry, 33) + 1, now, #error) .. error
    local flags = byte(entry, FLAGS)
    return sub(entry, 1, FLAGS - 1) .. char(has_errors(flags) and flags or flags + 4) .. sub(entry, FLAGS + 1)
  end

  local function is_cancelled(of, id, entry)
    if errors_of(of, id, entry) then of.forgotten[#of.forgotten + 1] = id end
    local retention, seen = number_at('>I6', entry, 25), ''
    if retention > 0 then
      local ids, over = bin_of(retention)
      seen, ids[#ids + 1] = 'c', id
      of.results[#of.results + 1] = id
      of.results[#of.results + 1] = over .. seen
    end
    of.apart[#of.apart + 1] = id
    tally(of, 'cancelled')
    has_ended(of, id, entry, seen)
  end

  -- The row of a dead letter is described in `letter.lua`.
  local function is_dead(of, id, entry, reason, error)
    of.dead[#of.dead + 1] = id
    of.dead[#of.dead + 1] = char(reason) .. pack('>I4', #error) .. error .. entry
    of.died[#of.died + 1] = store_time()
    of.died[#of.died + 1] = id
    has_ended(of, id, entry, '')
  end

  -- A row cannot be read, or is missing. Its bytes, if there are any, are kept as evidence.
  local function is_found(of, error, row)
    of.found, of.trouble = of.found + 1, error
    of.evidence[#of.evidence + 1] = string.format('%.0f %s: ', now, error) .. sub(row, 1, 1024)
  end

  -- A task of which something is lost. There is a letter of it if it was alive: with an entry of what is known.
  local function is_damaged(of, id, error, rest)
    is_found(of, error, rest or id)
    local row = call('HGET', ALIVE, id)
    if not row then return end
    row = row .. string.rep('\0', 22)
    local entry = id .. sub(row, 1, 14) .. string.rep('\0', 16) .. sub(row, 15, 22) .. string.rep('\0', 5)
    tally(of, 'ended_apart')
    is_dead(of, id, entry, DAMAGED, error)
  end

  -- Counts rows that were found lately to be unreadable, or missing.
  local function note_damage(found, error, evidence)
    local before = call('HMGET', META, 'damaged', 'damaged_at')
    local is_recent = math.abs(now - (tonumber(before[2] or '0') or 0)) < DAMAGE_IS_NEWS
    if is_recent then found = found + (tonumber(before[1] or '0') or 0) end
    call('HSET', META, 'damaged', found, 'damaged_at', now, 'trouble', error)
    if #evidence == 0 then return end
    call('LPUSH', DAMAGE, unpack(evidence))
    call('LTRIM', DAMAGE, 0, 99)
  end

  local function is_delayed(of, id, entry, due)
    of.delayed[#of.delayed + 1] = id
    of.delayed[#of.delayed + 1] = entry
    of.due[#of.due + 1] = due
    of.due[#of.due + 1] = id
  end

  local function goes_first(of, id, entry)
    of.first[#of.first + 1] = entry
    if is_quarantined(entry) then of.quarantined[#of.quarantined + 1] = id end
  end

  -- Ids are compared as numbers: strings are compared by the rules of the server's language.
  local function by_id(a, b)
    if a[1] ~= b[1] then return a[1] > b[1] end
    if a[2] ~= b[2] then return a[2] > b[2] end
    return a[3] > b[3]
  end

  -- Sorts entries such that they are in the order of their ids once each was put first.
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

  -- The last write takes the tasks back to where they wait. Until then, each can be undone.
  local function write_outcomes(of)
    write_bins()
    write_all('HSET', ERRORS, of.errors)
    write_all('HDEL', ERRORS, of.forgotten)
    write_all('HSET', RESULTS, of.results)
    write_all('HSET', DELAYED, of.delayed)
    write_all('ZADD', DUE, of.due)
    write_all('HSET', DEAD, of.dead)
    write_all('ZADD', DIED, of.died)
    for i = 2, #of.gone, 2 do call('ZREM', DUE, of.gone[i]) end
    for i = 1, #of.flags, 2 do call('HDEL', CANCEL, of.flags[i]) end
    write_all('HDEL', ALIVE, of.ended)
    write_all('HDEL', RUNNING, of.ids)
    any_quarantined = any_quarantined or #of.quarantined > 0
    write_all('SADD', QUARANTINED, of.quarantined)
    lists().push('LPUSH', of.groups)
  end

  -- Writes outcomes as a unit.
  local function settle_outcomes(key, of)
    sort_entries(of.first)
    of.groups = lists().at_the_head(of.first)
    state.key, state.unit = key, of
    write_outcomes(of)
    has_effect(key)
    for _, group in ipairs(of.groups) do state.pushed[#state.pushed + 1] = group end
    for what, n in pairs(of.counts) do count(what, n) end
    if of.found > 0 then pcall(note_damage, of.found, of.trouble, of.evidence) end
    write_all('HDEL', PAYLOADS, of.apart)
    for i = 2, #of.gone, 2 do call('HDEL', DELAYED, of.gone[i]) end
    tell_watchers(of.ended, of.seen)
  end

  return {
    begin = new_outcomes, tally = tally, cancelled = is_cancelled, dead = is_dead, delayed = is_delayed,
    damaged = is_damaged, failed = has_failed, found = is_found, note = function(...) pcall(note_damage, ...) end,
    first = goes_first, settle = settle_outcomes,
  }
end
