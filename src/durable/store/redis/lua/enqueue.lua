-- Stores tasks. This is the one script that a server without memory refuses: its first write fails, and nothing
-- has happened.
--
-- Needs: session, lists, unit, store_time.
-- ARGV: 1 session; 2 number; 3 first id; 4 w, the number of waiting tasks; 5 d, of delayed ones; 6 p, of payloads
-- apart; 7 the version of the routes that the client knows; 8 g, the number of lists that the waiting tasks go to by
-- these, or 0 if that is the main list alone; then w + d times (id, client id, retention and kind); w + d entries, the
-- waiting first, list by list; d delays; p times (id, payload); g times (list, number of tasks).
-- Result: OK, or ROUTES if the client's routes are not those of the store. Both mean that all of it was stored, by
-- this execution or by an earlier one.
-- Errors: NOSESSION if the session has ended, or has sent a later request; UNDONE or HALF if a command failed.
local session, number = find_session(ARGV[1]), tonumber(ARGV[2])
if not session or number < session.number then return redis.error_reply('NOSESSION it has ended') end
local waiting, delayed, apart = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local total = waiting + delayed
if number == session.number then
  if session.first ~= ARGV[3] then return redis.error_reply('NOSESSION it has ended') end
  local first = 9 + 2 * total
  -- The tasks are stored: a wake that fails changes nothing of that.
  pcall(function() lists().wake_for(lists().at_the_end({ unpack(ARGV, first, first + waiting - 1) })) end)
  return 'OK'
end
if total > MAX_BATCH then return redis.error_reply('ERR more tasks than a batch may have') end
if total == 0 then return 'OK' end

-- Those that are there: alive, or ended and still kept. What is kept no longer is removed.
local there, any = {}, false
local ids = {}
for i = 1, total do ids[i] = ARGV[7 + 2 * i] end
for i, row in ipairs(call('HMGET', ALIVE, unpack(ids))) do
  if row then there[i], any = true, true end
end
-- Of few, it is as cheap to look for each as to see whether there are any.
if total <= 8 or call('EXISTS', RESULTS) == 1 then
  for i, row in ipairs(call('HMGET', RESULTS, unpack(ids))) do
    if row and #row > 6 and number_at('>I6', row) > store_time() then
      there[i], any = true, true
    elseif row then
      call('HDEL', RESULTS, ids[i])
    end
  end
end
if call('EXISTS', DIED) == 1 then
  for i, since in ipairs(call('ZMSCORE', DIED, unpack(ids))) do
    if since and since + DEAD_RETENTION > store_time() then
      there[i], any = true, true
    elseif since then
      call('HDEL', PAYLOADS, ids[i])
      call('HDEL', ERRORS, ids[i])
      call('HDEL', DEAD, ids[i])
      call('ZREM', DIED, ids[i])
    end
  end
end

-- The arguments from one on, so many for each task, of those that are not there.
local function fresh(from, first, last, each)
  if last < first then return {} end
  if not any then return { unpack(ARGV, from, from + (last - first + 1) * each - 1) } end
  local part = {}
  for i = first, last do
    for k = 0, each - 1 do
      if not there[i] then part[#part + 1] = ARGV[from + (i - first) * each + k] end
    end
  end
  return part
end
local at = 9
local alive = fresh(at, 1, total, 2)
at = at + 2 * total
local entries = fresh(at, 1, waiting, 1)
at = at + waiting
local later, dues, payloads, is_earlier
if apart > 0 then
  local new = {}
  payloads = {}
  for i = 1, #alive, 2 do new[alive[i]] = true end
  for i = at + 2 * delayed, at + 2 * (delayed + apart) - 1, 2 do
    if new[ARGV[i]] then payloads[#payloads + 1], payloads[#payloads + 2] = ARGV[i], ARGV[i + 1] end
  end
end
if delayed > 0 then
  later, dues = {}, {}
  local rows, delays = fresh(at, waiting + 1, total, 1), fresh(at + delayed, waiting + 1, total, 1)
  for i, entry in ipairs(rows) do
    later[2 * i - 1], later[2 * i] = sub(entry, 1, 16), entry
    dues[2 * i - 1], dues[2 * i] = now + delays[i], later[2 * i - 1]
  end
end

-- The lists that they go to; nothing if that is the main one.
local groups
local is_known = ARGV[7] == version
if not is_known or any then
  groups = lists().at_the_end(entries)
elseif ARGV[8] ~= '0' then
  -- The client has computed the lists, and how many tasks go to each.
  groups = {}
  local said, first = at + 2 * (delayed + apart), 1
  for i = 1, tonumber(ARGV[8]) do
    local list, last = ARGV[said], first + ARGV[said + 1] - 1
    groups[i] = { list = list, key = key_of(list), entries = { unpack(entries, first, last) } }
    said, first = said + 2, last + 1
  end
end

-- The rows by id come first, then what makes the tasks run, and the number last: it says that all the rest is there.
state.unit = { undo = 'enqueue', session = session, entries = entries, groups = groups, later = later, payloads = payloads }
if payloads and #payloads > 0 then call('HSET', PAYLOADS, unpack(payloads)) end
if later and #later > 0 then call('HSET', DELAYED, unpack(later)) end
if #alive > 0 then call('HSET', ALIVE, unpack(alive)) end
if dues and #dues > 0 then
  local first = tonumber(call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or 'inf')
  for i = 1, #dues, 2 do is_earlier = is_earlier or dues[i] < first end
  call('ZADD', DUE, unpack(dues))
end
if groups then
  for _, group in ipairs(groups) do
    local key = group.key
    if meta[3] then lists().cleared(group.entries) end
    call('RPUSH', key, unpack(group.entries))
    group.is_pushed = true
  end
elseif #entries > 0 then
  if meta[3] then lists().cleared(entries) end
  call('RPUSH', READY, unpack(entries))
  state.unit.is_pushed = true
end
session.number, session.claim, session.first, session.at = number, '', ARGV[3], now
save_session(ARGV[1], session)

-- It is stored: what can fail from here on changes nothing of that.
if groups then
  for _, group in ipairs(groups) do pcall(wake, group.list, math.min(4, #group.entries)) end
elseif #entries > 0 then
  pcall(wake, MAIN, math.min(4, #entries))
end
-- Those that were woken need not know what is due.
if is_earlier then pcall(lists().wake_one) end
return is_known and 'OK' or 'ROUTES'
