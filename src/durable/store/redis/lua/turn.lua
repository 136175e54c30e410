-- Takes verdicts, takes back what is late, makes due what is due, and claims, in this order.
--
-- Needs: session, wake, entry, ends, claim, reap.
-- ARGV: 1 session; 2 number; 3 client id; 4 how many tasks are wanted; 5 of how many bytes; 6 whether a
-- quarantined one may be among them; 7 the lease; 8 whether to go idle: 1 if nothing is claimed, 2 if less than
-- wanted; 9 the number of claims with verdicts. For each of these: its epoch; n, how many are done; n ids;
-- n outputs; m, how many others; m ids; m times a verdict and two more (see `others`).
-- Result: 1 the places of refused verdicts; 2 the epoch of the claim, or empty; 3 its entries; 4 payloads that are
-- apart, in their order; 5 whether more waits; 6 in how many milliseconds to look again, or -1; 7 the time; 8 whether
-- this is a repetition; 9 whether the session is idle although something was claimed.
-- Error: NOSESSION if the session has ended, or has sent a later request.
local resting = ARGV[3] .. ARGV[1]
-- The first write is one that also a server takes that is out of memory.
call('ZREM', IDLE, '')
local session, number = find_session(ARGV[1]), tonumber(ARGV[2])
if not session or number < session.number then return redis.error_reply('NOSESSION it has ended') end
call('ZREM', IDLE, resting)
local want, want_bytes = math.min(tonumber(ARGV[4]), MAX_BATCH), tonumber(ARGV[5])
local risky, lease = ARGV[6] == '1', tonumber(ARGV[7])
local tombstones = tonumber(meta[3] or '0')
local refused, told, flagged = {}, 0, false
local out, epoch, any_quarantined, any_apart = {}, '', false, false
-- The line is, for certain.
local is_empty = false
-- When the first task is due, and the first lease over; nothing: that has changed.
local due, over = nil, nil

-- What the tasks of a claim have in `run`, by their place: nothing of those that are not held, which
-- are refused. And how many are held.
local function held_of(of, first, n)
  local rows, held = call('HMGET', RUNNING, unpack(ARGV, first, first + n - 1)), 0
  for i = 1, n do
    local row = rows[i]
    if row and sub(row, 1, 16) == of then
      held = held + 1
    else
      rows[i] = false
      refused[#refused + 1] = told + i
    end
  end
  told = told + n
  return rows, held
end

-- So many tasks of a claim are held no longer.
local function settled(of, n)
  if n > 0 and call('HINCRBY', CLAIMS, of .. 'n', -n) <= 0 then drop_claim(of) end
end

-- Tasks that have succeeded: all that belongs to them goes at once. In a row, an epoch of 16 bytes is
-- before the entry, which is not copied here. Whoever takes the verdict knows it: its own process is
-- not told.
local function settle_done(of, first, n)
  local rows, held = held_of(of, first, n)
  if held == 0 then return end
  local gone, apart, kept, seen, own = {}, {}, {}, {}, ARGV[3]
  local retention, ids, over, is_told
  for i = 1, n do
    local row = rows[i]
    if row then
      local id, client, how = ARGV[first + i - 1], sub(row, 33, 40), ''
      gone[#gone + 1] = id
      if byte(row, 71) % 2 == 0 then apart[#apart + 1] = id end
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
  call('HDEL', RUNNING, unpack(gone))
  call('HDEL', ALIVE, unpack(gone))
  if #apart > 0 then call('HDEL', PAYLOADS, unpack(apart)) end
  if #kept > 0 then call('HSET', RESULTS, unpack(kept)) end
  if flagged then call('HDEL', CANCEL, unpack(gone)) end
  tell_watchers(gone, seen)
  count('done', held)
  settled(of, held)
end

-- What else can become of runs.
local function others()
  local end_cancelled, die, put_first = endings()

  local function delay(id, entry, after, failures, unknown)
    local ready_at = unknown or math.min(now + after, UNKNOWN - 1)
    entry = sub(entry, 1, 32) .. pack('>I4', number_at('>I4', entry, 33) + failures)
      .. sub(entry, 37, 40) .. pack('>I6', ready_at) .. sub(entry, 47)
    call('HSET', DELAYED, id, entry)
    call('ZADD', DUE, now + after, id)
    due = nil
  end

  -- The entry, if the task is to be put first.
  local function settle_other(id, entry, what, one, two)
    if flagged and call('HDEL', CANCEL, id) == 1 then
      count('cancelled', 1)
      end_cancelled(id, sub(entry, 17, 24), number_at('>I6', entry, 25))
    elseif what == 'retry' then
      count('retried', 1)
      delay(id, entry, one, 1)
    elseif what == 'snooze' then
      count('snoozed', 1)
      delay(id, entry, one, 0)
    elseif what == 'unknown' then
      count('snoozed', 1)
      local since = number_at('>I6', entry, 41)
      delay(id, entry, one, 0, since >= UNKNOWN and since or UNKNOWN + now)
    elseif what == 'release' then
      count('released', 1)
      return entry
    else
      -- Dead: how many failures that counts for, and the reason.
      local failures = number_at('>I4', entry, 33) + tonumber(sub(what, 1, 1))
      entry = sub(entry, 1, 32) .. pack('>I4', failures) .. sub(entry, 37)
      count('died', 1)
      die(id, entry, tonumber(one), two)
    end
    return nil
  end

  return function(of, first, n)
    local rows, held = held_of(of, first, n)
    if held == 0 then return end
    local gone, back = {}, {}
    for i = 1, n do
      if rows[i] then
        local id, at = ARGV[first + i - 1], first + n + 3 * (i - 1)
        gone[#gone + 1] = id
        back[#back + 1] = settle_other(id, sub(rows[i], 17), ARGV[at], ARGV[at + 1], ARGV[at + 2])
      end
    end
    call('HDEL', RUNNING, unpack(gone))
    put_first(back)
    settled(of, held)
  end
end

local function settle_all(groups)
  local at, settle_others = 10, nil
  for _ = 1, groups do
    local of, done = ARGV[at], tonumber(ARGV[at + 1])
    if done > 0 then settle_done(of, at + 2, done) end
    at = at + 2 + 2 * done
    local n = tonumber(ARGV[at])
    if n > 0 then
      settle_others = settle_others or others()
      settle_others(of, at + 1, n)
    end
    at = at + 1 + 4 * n
  end
end

-- When the first of a sorted set is due, or over.
local function first_of(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 'inf')
end

-- Lets wait what was delayed, the earliest first; whether there was anything.
local function make_due()
  due = first_of(DUE)
  if due > now then return false end
  local ids = call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, MAX_BATCH)
  local entries = call('HMGET', DELAYED, unpack(ids))
  for i, entry in ipairs(entries) do
    if is_quarantined(entry) then call('SADD', QUARANTINED, ids[i]) end
  end
  call('ZREM', DUE, unpack(ids))
  call('HDEL', DELAYED, unpack(ids))
  call('RPUSH', READY, unpack(entries))
  due = nil
  return true
end

-- The first of the line, as many as are wanted.
local function take_first()
  local entries, bytes, n = call('LRANGE', READY, 0, want - 1), 0, 0
  -- Those whose payload is elsewhere may be large; the others, only together.
  local can_all = want_bytes >= MAX_BATCH * 1024
  for i, entry in ipairs(entries) do
    if byte(entry, FLAGS) % 2 == 0 then
      any_apart = true
      bytes = bytes + number_at('>I4', entry, LENGTH)
    elseif can_all then bytes = bytes + #entry
    else bytes = bytes + number_at('>I4', entry, LENGTH) end
    if bytes > want_bytes and i > 1 then break end
    n = i
  end
  if n == #entries then out = entries else for i = 1, n do out[i] = entries[i] end end
  is_empty = n == #entries and n < want
  if n > 0 then call('LTRIM', READY, n, -1) end
end

-- The same, when some in the line are cancelled or risky: those that are passed over stay first.
local function choose_first()
  -- Whether this is what a cancelled task has left in the line: the first of its id is.
  local function is_tomb(id)
    if tombstones == 0 or not call('HGET', TOMBSTONES, id) then return false end
    if call('HINCRBY', TOMBSTONES, id, -1) == 0 then call('HDEL', TOMBSTONES, id) end
    call('HINCRBY', META, 'tombstones', -1)
    tombstones = tombstones - 1
    return true
  end

  local room, bytes, seen, full, passed = risky, 0, 0, #out == want, {}
  any_apart = true
  while not full and seen < 4 * MAX_BATCH do
    local entries = call('LRANGE', READY, seen, seen + MAX_BATCH - 1)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      local id, is_one = sub(entry, 1, 16), is_quarantined(entry)
      if #out == want then full = true break end
      if not is_tomb(id) then
        if is_one and not room then
          passed[#passed + 1] = entry
        else
          bytes = bytes + number_at('>I4', entry, LENGTH)
          if bytes > want_bytes and #out > 0 then full = true break end
          out[#out + 1] = entry
          if is_one then
            room = false
            call('SREM', QUARANTINED, id)
          end
        end
      end
      seen = seen + 1
    end
  end
  if seen > 0 then call('LTRIM', READY, seen, -1) end
  for i = #passed, 1, -1 do call('LPUSH', READY, passed[i]) end
end

-- An epoch is above all earlier ones, also above those that a server that was put back forgot.
local function claim()
  if want == 0 then return end
  any_quarantined = call('EXISTS', QUARANTINED) == 1
  if tombstones == 0 and not any_quarantined then take_first() else choose_first() end
  if #out == 0 then return end
  local last = tonumber(meta[2] or '0')
  epoch = string.format('%016.0f', micros > last and micros or last + 1)
  local rows, ids = {}, {}
  for i, entry in ipairs(out) do
    ids[i] = sub(entry, 1, 16)
    rows[2 * i - 1], rows[2 * i] = ids[i], epoch .. entry
  end
  call('HSET', RUNNING, unpack(rows))
  local owner = ARGV[3] .. pack('>I6', lease) .. ARGV[1]
  call('HSET', CLAIMS, epoch, concat(ids), epoch .. 'n', #ids, epoch .. 'o', owner)
  call('ZADD', LEASE, now + lease, epoch)
  over = math.min(over or first_of(LEASE), now + lease)
  call('HSET', META, 'epoch', epoch)
  count('claimed', #ids)
end

local function take(groups)
  if groups > 0 then
    flagged = call('EXISTS', CANCEL) == 1
    settle_all(groups)
  end
  over = first_of(LEASE)
  local changed = over <= now and reaping()(now)
  if changed then over = nil end
  changed = make_due() or changed
  claim()
  -- A turn that changes nothing is not written down.
  if changed or epoch ~= '' or groups > 0 then
    session.number, session.claim, session.last, session.first = number, epoch, epoch, ''
    save_session(ARGV[1], session)
  end
end

-- The claim of the session's last turn, as far as it is still held.
local function again()
  if session.claim == '' then return end
  local row = call('HMGET', CLAIMS, session.claim, session.claim .. 'o')
  if not row[1] then return end
  epoch = session.claim
  local _, entries = held(epoch, row[1])
  out, any_quarantined, any_apart = entries, true, true
  call('ZADD', LEASE, 'XX', now + number_at('>I6', row[2], 9), epoch)
  call('HDEL', CLAIMS, epoch .. 's')
end

local is_repeated = number == session.number
if is_repeated then again() else take(tonumber(ARGV[9])) end

local apart = {}
if any_quarantined or any_apart then
  for _, entry in ipairs(out) do
    risky = risky and not (any_quarantined and is_quarantined(entry))
    if byte(entry, FLAGS) % 2 == 0 then apart[#apart + 1] = sub(entry, 1, 16) end
  end
end
local left = is_empty and 0 or call('LLEN', READY) - tombstones
if left > 0 and not risky then left = left - call('SCARD', QUARANTINED) end
local next = math.min(due or first_of(DUE), over or first_of(LEASE))
next = next == math.huge and -1 or math.max(next - now, 0)
local parks = left <= 0 and (ARGV[8] == '2' and #out < want or ARGV[8] == '1' and #out == 0)
if parks then call('ZADD', IDLE, now, resting) end
if #apart > 0 then apart = call('HMGET', PAYLOADS, unpack(apart)) end
flush()
if left > 0 then wake(1) end
return { refused, epoch, out, apart, left > 0 and 1 or 0, next, now, is_repeated and 1 or 0, parks and #out > 0 and 1 or 0 }
