-- Stores a batch of tasks. This is the only script that a server without memory refuses: its first write fails, so it has
-- no effect.
--
-- Needs: session, lists, store_time.
-- On demand: key_conflicts.
-- Undo: enqueue.
-- KEYS: NONE, META, SESSIONS, READY, ALIVE, PAYLOADS, DELAYED, DUE, RESULTS, DEAD, DIED, ERRORS, TOMBSTONES, IDLE, ROUTES,
--   UNLISTED, QUEUES, PERMITS, HELD_KEYS, GROUPS.
--
-- ARGV[1]   -> session
-- ARGV[2]   -> number of the request
-- ARGV[3]   -> first id
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
-- Output: OK, or ROUTES if the client's routes are not those of the store. Both mean that all tasks are stored, by this execution or
-- by an earlier one, except those with conflicts. If there are conflicts, the output is a table: OK or ROUTES, and a string that has
-- for each task that is not stored: its position in the request 2, the resolution 1 (see `key_conflicts.lua`), id of the holder 16.
--
-- Errors:
-- NOSESSION         -> the session has ended, or has sent a later request
-- UNDONE or PARTIAL -> a command failed
local session, number = find_session(ARGV[1]), tonumber(ARGV[2])
if not session or number < session.number then return redis.error_reply('NOSESSION it has ended') end
local waiting_count, delayed_count, payload_count = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local total = waiting_count + delayed_count
if number == session.number then
  if session.first ~= ARGV[3] then return redis.error_reply('NOSESSION it has ended') end
  local first = 10 + 2 * total
  -- The tasks are stored, so a failure to wake workers does not matter.
  pcall(function() lists().wake_for(lists().at_the_end({ unpack(ARGV, first, first + waiting_count - 1) })) end)
  return session.answer and { 'OK', session.answer } or 'OK'
end
if total > MAX_BATCH then return redis.error_reply('ERR more tasks than a batch may have') end
if total == 0 then return 'OK' end

-- Finds the tasks that exist: those that are alive, or have ended and are still kept. Expired ones are removed.
local is_stored, any_stored = {}, false
local ids = {}
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
      call('HDEL', RESULTS, ids[i])
    end
  end
end
if call('EXISTS', DIED) == 1 then
  for i, since in ipairs(call('ZMSCORE', DIED, unpack(ids))) do
    if since and since + DEAD_RETENTION > store_time() then
      is_stored[i], any_stored = true, true
    elseif since then
      call('HDEL', PAYLOADS, ids[i])
      call('HDEL', ERRORS, ids[i])
      call('HDEL', DEAD, ids[i])
      call('ZREM', DIED, ids[i])
    end
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

-- Rows by id are written first, then the entries that make the tasks run, and the number of the request last: it confirms
-- that everything else is written.
state.transaction = { undo = 'enqueue', session = session, entries = entries, bundles = bundles, delayed = delayed, payloads = payloads,
  restore = conflicts and conflicts.restore }
if payloads and #payloads > 0 then call('HSET', PAYLOADS, unpack(payloads)) end
if delayed and #delayed > 0 then call('HSET', DELAYED, unpack(delayed)) end
if #alive > 0 then call('HSET', ALIVE, unpack(alive)) end
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
  call('RPUSH', READY, unpack(entries))
  state.transaction.is_pushed = true
end
session.number, session.claim, session.first, session.at = number, '', ARGV[3], now
session.answer = conflicts and conflicts.answer ~= '' and conflicts.answer or nil
save_session(ARGV[1], session)

-- The tasks are stored. Failures from here on do not change that.
if bundles then
  lists().wake_for(bundles)
elseif #entries > 0 then
  pcall(wake, MAIN, math.min(4, #entries))
end
-- Woken workers may not know the new due time.
if is_earlier then pcall(lists().wake_one) end
if replaced then pcall(replaced.clean_up) end
local answer = is_known and 'OK' or 'ROUTES'
return session.answer and { answer, session.answer } or answer
