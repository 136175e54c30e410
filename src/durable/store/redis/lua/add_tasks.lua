-- Stores tasks that do not exist yet: the end of `enqueue.lua` and `change_schedule.lua`, which define these variables:
--
-- waiting_count, delayed_count, total -> numbers of tasks
-- undo_by -> name of the function that undoes the transaction: see `transaction.lua`
-- session -> session of the request, or nil
-- schedule -> table from which the transaction restores the schedule if it is undone, or nil
-- push_claim -> function that claims tasks for an idle session, and returns `true` unless sessions are to be woken: see
--   `push_claim.lua`; or nil
-- confirm -> function that writes that the tasks are stored. Its argument is the text about the tasks that are not stored because
--   of their keys, as in the output of `enqueue.lua`, or nil. If there is no task, the function may return the output of the script
--
-- Both scripts have the same arguments from the fourth on:
--
-- ARGV[4]   -> number of waiting tasks, w
-- ARGV[5]   -> number of delayed tasks, d
-- ARGV[6]   -> number of payloads that the entries do not contain, p
-- ARGV[7]   -> version of the routes that the client knows
-- ARGV[8]   -> number of lists that these routes assign to the waiting tasks, g; 0 if that is only the main list; -1 if
--   some tasks have groups, so that the script assigns them
-- ARGV[9]   -> records of the tasks with keys, one after the other: see `key_conflicts.lua`
-- ARGV[10..] -> w + d times (id, row in `alive`); w + d entries, those of waiting tasks first, list by list; d delays in
--   milliseconds; p times (id, payload); g times (list, number of tasks)
--
-- Needs: lists, store_time, retention, steps.
-- On demand: key_conflicts.
-- Undo: enqueue.
--
-- Output: the same as that of `enqueue.lua`. Without tasks, the result of `confirm`, or OK.

local MAX_PUSHED = 16
local payload_count = tonumber(ARGV[6])
if total > MAX_BATCH then return redis.error_reply('ERR more tasks than a batch may have') end
if total == 0 then
  state.transaction = { undo = undo_by, session = session, schedule = schedule, entries = {} }
  return confirm() or 'OK'
end

-- Finds the tasks that exist: those that are alive, or have ended and are still kept. Expired ones are removed.
local is_stored, any_stored = {}, false
local ids, expired_results, expired_dead_letters = {}, {}, {}
for i = 1, total do ids[i] = ARGV[8 + 2 * i] end
for i, row in ipairs(call('HMGET', ALIVE, unpack(ids))) do
  if row then is_stored[i], any_stored = true, true end
end
-- For a few tasks, reading their rows is as cheap as testing whether there are any.
if total <= 8 or call('EXISTS', RESULTS) == 1 then
  for i, row in ipairs(call('HMGET', RESULTS, unpack(ids))) do
    if row and #row >= RESULT_STATE and number_at('>I6', row) > store_time() then
      is_stored[i], any_stored = true, true
    elseif row then
      expired_results[#expired_results + 1] = ids[i]
    end
  end
end
-- Ids for which a script that has failed may have left progress behind.
local left = {}
if call('EXISTS', DIED, PROGRESS) > 0 then
  if call('EXISTS', PROGRESS) == 1 then
    for i = 1, total do
      if not is_stored[i] then left[#left + 1] = ids[i] end
    end
  end
  for i, since in ipairs(call('ZMSCORE', DIED, unpack(ids))) do
    if is_dead_letter_kept(since) then
      is_stored[i], any_stored = true, true
    elseif since then
      expired_dead_letters[#expired_dead_letters + 1] = ids[i]
    end
  end
end
-- Expired ones are removed before the tasks are stored. Otherwise, maintenance would remove the payload of a new task together with the
-- expired dead letter that has the same id.
if #expired_results + #expired_dead_letters > 0 then
  -- The first write must be one that a server refuses if it has no memory left; otherwise, the server would accept the others, too. This
  -- one changes nothing, since no id is empty.
  call('ZADD', DIED, 'XX', 0, '')
  if #expired_results > 0 then call('HDEL', RESULTS, unpack(expired_results)) end
  if #expired_dead_letters > 0 then
    call('HDEL', PAYLOADS, unpack(expired_dead_letters))
    call('HDEL', ERRORS, unpack(expired_dead_letters))
    call('HDEL', DEAD, unpack(expired_dead_letters))
    call('ZREM', DIED, unpack(expired_dead_letters))
  end
end

-- The same for steps.
local left_steps = {}
if meta[8] then
  for i = 1, total do
    if not is_stored[i] then left_steps[#left_steps + 1] = ids[i] end
  end
end

-- A task whose key another task holds is treated as stored, so nothing is written for it.
local conflicts = ARGV[9] ~= '' and load_key_conflicts()(ARGV[9], ids, is_stored, 10 + 2 * total,
  { waiting = waiting_count, delayed = delayed_count, payloads = payload_count })
local replaced = conflicts and conflicts.replacements
any_stored = any_stored or conflicts and conflicts.is_any

-- Returns the arguments of tasks that do not exist yet, from `from` on, with `each` arguments for a task.
local function arguments_of_new(from, first, last, each)
  if last < first then return {} end
  if not any_stored then return { unpack(ARGV, from, from + (last - first + 1) * each - 1) } end
  local part = {}
  for i = first, last do
    for k = 0, each - 1 do
      if not is_stored[i] then part[#part + 1] = ARGV[from + (i - first) * each + k] end
    end
  end
  return part
end
local at = 10
local alive = arguments_of_new(at, 1, total, 2)
at = at + 2 * total
local entries = arguments_of_new(at, 1, waiting_count, 1)
at = at + waiting_count
local delayed, dues, payloads, is_earlier
if payload_count > 0 then
  local new = {}
  payloads = {}
  for i = 1, #alive, 2 do new[alive[i]] = true end
  for i = at + 2 * delayed_count, at + 2 * (delayed_count + payload_count) - 1, 2 do
    if new[ARGV[i]] then payloads[#payloads + 1], payloads[#payloads + 2] = ARGV[i], ARGV[i + 1] end
  end
end
if delayed_count > 0 then
  delayed, dues = {}, {}
  local rows, delays = arguments_of_new(at, waiting_count + 1, total, 1), arguments_of_new(at + delayed_count, waiting_count + 1, total, 1)
  for i, entry in ipairs(rows) do
    delayed[2 * i - 1], delayed[2 * i] = sub(entry, 1, ENTRY_ID_END), entry
    dues[2 * i - 1], dues[2 * i] = now + delays[i], delayed[2 * i - 1]
  end
end

if replaced then alive, delayed, dues, payloads = replaced.merge(alive, entries, delayed, dues, payloads) end

-- The bundles of entries by list; nil if all are added to the main list.
local bundles
-- `true` if the new entries are the only ones of the main list.
local are_only_entries = false
local is_known = ARGV[7] == version
-- The client sorts the waiting tasks by list, unless one may replace another, or has a group.
if not is_known or any_stored or conflicts and conflicts.may_replace or ARGV[8] == '-1' then
  bundles = lists().at_the_end(entries)
elseif ARGV[8] ~= '0' then
  -- The client has computed the lists and the number of tasks for each.
  bundles = {}
  local list_at, first = at + 2 * (delayed_count + payload_count), 1
  for i = 1, tonumber(ARGV[8]) do
    local list, last = ARGV[list_at], first + ARGV[list_at + 1] - 1
    bundles[i] = { list = list, key = key_of(list), entries = { unpack(entries, first, last) } }
    list_at, first = list_at + 2, last + 1
  end
end

if replaced and bundles then
  for _, bundle in ipairs(bundles) do
    if bundle.group then groups().read_turn(bundle) end
  end
end

-- Rows by id are written first, then the entries that make the tasks run.
local transaction = {
  undo = undo_by, session = session, schedule = schedule, entries = entries, bundles = bundles, delayed = delayed, payloads = payloads,
  restore = conflicts and conflicts.restore,
}
state.transaction = transaction
if payloads and #payloads > 0 then call('HSET', PAYLOADS, unpack(payloads)) end
if delayed and #delayed > 0 then call('HSET', DELAYED, unpack(delayed)) end
-- Steps and progress are removed only now. As the first write, such a removal would be accepted by a server that has no memory left, and so
-- would be all later writes.
if #alive > 0 then
  call('HSET', ALIVE, unpack(alive))
  remove_steps(left_steps)
  if #left > 0 then call('HDEL', PROGRESS, unpack(left)) end
end
if dues and #dues > 0 then
  local first = tonumber(call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or 'inf')
  for i = 1, #dues, 2 do is_earlier = is_earlier or dues[i] < first end
  call('ZADD', DUE, unpack(dues))
end
if conflicts then conflicts.write() end
if bundles then
  for _, bundle in ipairs(bundles) do
    local key = bundle.key
    if meta[3] then lists().mark_listed(bundle.entries) end
    if bundle.group then
      groups().push('RPUSH', bundle)
    else
      if replaced then bundle.before = call('LLEN', key) end
      call('RPUSH', key, unpack(bundle.entries))
      bundle.is_pushed = true
    end
  end
  if ARGV[8] == '-1' or replaced then lists().count_grouped(bundles) end
elseif #entries > 0 then
  if meta[3] then lists().mark_listed(entries) end
  are_only_entries = call('RPUSH', READY, unpack(entries)) == #entries
  transaction.is_pushed = true
end
local unstored = conflicts and conflicts.answer ~= '' and conflicts.answer or nil
confirm(unstored)

-- The tasks are stored. Failures from here on do not change that. If the script runs again, it knows of the new due time.
state.is_earlier = state.is_earlier or is_earlier
if bundles then
  lists().wake_for(bundles)
elseif #entries > 0 and not (push_claim and plain_set and are_only_entries and total <= MAX_PUSHED and push_claim(entries)) then
  pcall(wake, MAIN, math.min(4, #entries))
end
-- Woken workers may not know the new due time.
if state.is_earlier then pcall(lists().wake_one) end
if replaced then pcall(replaced.clean_up) end
local answer = is_known and 'OK' or 'ROUTES'
return unstored and { answer, unstored } or answer
