-- Takes verdicts, takes back what is late, makes due what is due, and claims, in this order.
--
-- Needs: session, lists, plans, unit, entry, notices, results, outcomes, claims, reap, verdicts, due, drain, ceiling,
-- claim.
-- ARGV: 1 session; 2 number; 3 client id; 4 how many tasks are wanted; 5 of how many bytes; 6 whether a
-- quarantined one may be among them; 7 the lease; 8 whether to go idle: 1 if nothing is claimed, 2 if less than
-- wanted; 9 the number of claims with verdicts; 10 the claim with which the last turn was answered, or empty; 11 an
-- epoch that new ones exceed. For each of the claims with verdicts: its epoch; n, how many are done; n ids;
-- n outputs; m, how many others; m ids; m times a verdict and two more (see `verdicts.lua`).
-- Result: 1 the places of refused verdicts; 2 the epoch of the claim, or empty; 3 its entries; 4 payloads that are
-- apart, in their order; 5 whether more waits; 6 in how many milliseconds to look again, or -1; 7 whether this is a
-- repetition; 8 whether the session is idle although something was claimed; 9 whether a list that drains is empty now.
-- Errors: NOSESSION if the session has ended, or has sent a later request; UNDONE or HALF if verdicts could not be
-- taken, or if there was nothing but trouble. The number is not saved then, so the turn can be sent again.
local resting = ARGV[3] .. ARGV[1]
local session, number = find_session(ARGV[1]), tonumber(ARGV[2])
if not session or number < session.number then return redis.error_reply('NOSESSION it has ended') end
-- The lists that the session reads. Both are nil if it reads only the main list.
local draining, leaves
if session.set ~= plain_set then
  draining, leaves = lists_of(session.set)
  -- It must declare its set again.
  if not leaves then return redis.error_reply('NOSESSION its set is not there') end
end
local idle = IDLE .. ':' .. session.set
do
  -- The first write is one that also a server takes that is out of memory.
  local key = idle
  call('ZREM', key, resting)
end
local risky, lease, groups = ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[9])
-- When the first task is due, and the first lease over; nothing: that has changed.
local due, over = nil, nil
local changed = false

-- A turn that changes nothing is not written down, nor one that has nothing to say but that something has failed.
local function save()
  if epoch == '' and groups == 0 and (trouble or not changed) then
    if session.is_changed then save_session(ARGV[1], session) end
    return
  end
  session.number, session.claim, session.first = number, epoch, ''
  if epoch ~= '' then session.undelivered = session.undelivered .. epoch .. ' ' end
  save_session(ARGV[1], session)
end

hear(session)
if ARGV[10] ~= '' then deliver(session, ARGV[10]) end
local is_repeated = number == session.number and not done.claim
if number == session.number then
  -- Answers with the claim of the last turn again, as far as it is still held.
  local row = session.claim ~= '' and call('HMGET', CLAIMS, session.claim, session.claim .. 'o')
  if row and row[1] and string.find(row[2] or '', '^-?%d+$', 15) then
    epoch, any_quarantined = session.claim, true
    local _, rows = held(epoch, row[1])
    for i, it in ipairs(rows) do out[i] = sub(it, 17) end
    apart = payloads_of(out)
    call('ZADD', LEASE, 'XX', now + number_at('>I6', row[2], 9), epoch)
    call('HDEL', CLAIMS, epoch .. 's')
  end
  if session.is_changed then save_session(ARGV[1], session) end
else
  if groups > 0 and not take_verdicts(session, 12, groups) then
    state.key = nil
    -- The effects so far are counted, and the clients are told of them.
    pcall(flush)
    error(trouble)
  end
  if not skip.lease then
    state.key = 'lease'
    over = first_of(LEASE)
    if over <= now and reaping()(now) then changed, over = true, nil end
  end
  if not skip.due then
    state.key = 'due'
    due = make_due()
    changed = changed or not due
  end
  if draining and #draining > 0 and not skip.drain then
    state.key = 'drain'
    drain_all(draining, leaves)
  end
  state.key = 'claim'
  if skip.claim then
    save()
  else
    claim(session, leaves, lease, risky, save)
    if epoch ~= '' then over = math.min(over or first_of(LEASE), now + lease) end
  end
end

if any_quarantined then
  for _, entry in ipairs(out) do risky = risky and not is_quarantined(entry) end
end
-- Whether something is left, and in which lists, unless that is the main one.
local left, left_in, next, parks = false, {}, 0, false
local function is_left(key)
  if is_empty and key == line then return false end
  if tombstones == 0 and (risky or not any_quarantined) then return call('LLEN', key) > 0 end
  return choosing().has_claimable(key, risky)
end
if not skip.ahead then
  state.key = 'ahead'
  for _, list in ipairs(leaves or {}) do
    if is_left(key_of(list)) then left_in[#left_in + 1] = list end
  end
  for _, list in ipairs(draining or {}) do
    local key = key_of(list)
    if call('EXISTS', key) == 1 then left_in[#left_in + 1] = list end
  end
  left = #left_in > 0 or not leaves and is_left(READY)
  next = math.min(due or first_of(DUE), over or first_of(LEASE))
  next = next == math.huge and -1 or math.max(next - now, 0)
  parks = not left and not trouble and (ARGV[8] == '2' and #out < want or ARGV[8] == '1' and #out == 0)
  if parks then
    local key = idle
    call('ZADD', key, now, resting)
  end
end
state.key = 'flush'
if not skip.flush then flush() end
state.key = nil
if trouble and groups == 0 and epoch == '' then error(trouble) end
if trouble then next = 0 end
-- A woken session wakes the next while tasks are left. Sessions that read other lists are woken for those.
if not leaves then
  if left then pcall(wake_of, plain_set, 1) end
else
  for _, list in ipairs(left_in) do pcall(wake, list, 1) end
  if #state.pushed > 0 then pcall(lists().wake_for, state.pushed) end
end
return {
  refused, epoch, out, apart, left and 1 or 0, next, is_repeated and 1 or 0, parks and #out > 0 and 1 or 0,
  is_drained and 1 or 0,
}
