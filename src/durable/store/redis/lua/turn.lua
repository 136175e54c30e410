-- Applies verdicts, reaps late claims, makes delayed tasks due, and claims tasks, in this order.
--
-- Needs: session, session_activity, lists, set_lists, transaction, entry, notifications, steps, claims, reap, verdicts, due, claim.
-- On demand: drain, pushed_claims.
-- Reads: schedules, aged.
-- KEYS: all.
--
-- ARGV[1]  -> session
-- ARGV[2]  -> number of the request
-- ARGV[3]  -> client id
-- ARGV[4]  -> number of tasks wanted
-- ARGV[5]  -> number of bytes wanted
-- ARGV[6]  -> 1 if a quarantined task may be claimed, else 0
-- ARGV[7]  -> lease in milliseconds
-- ARGV[8]  -> 1 to go idle if less than wanted is claimed; 2 to go idle as with 1 and to accept pushed claims, for as many tasks as were
--   wanted and not claimed; 0 not to go idle
-- ARGV[9]  -> number of parts of the verdicts, p
-- ARGV[10] -> epoch of the claim that answered the last turn, or empty
-- ARGV[11] -> epoch that new ones exceed
-- ARGV[12] -> epoch of the last pushed claim that has arrived, or empty
-- ARGV[13] -> 1 to return the first pushed claim that has not arrived, if there is one, instead of a new one, else 0
-- ARGV[14..] -> p times: number of claims, c; c times (epoch, number of completed tasks); ids of these tasks; their outputs; number of
--   other tasks of the last of these claims, m; m ids; m times one of these verdicts:
--     retry, delay in milliseconds, error
--     snooze, delay in milliseconds, empty
--     suspend, delay in milliseconds, number of steps that makes the task due and a description of them, or empty
--     release, empty, empty
--     0dead or 1dead, reason, error: the digit is the number of failures that the verdict adds
--   The name of a verdict may be followed by a space, and the milliseconds for which the group of the task is held. Each verdict is
--   followed by the duration of the run in milliseconds 4, or NO_RUN_TIME.
--
-- Output:
-- [1] -> positions of the refused verdicts, from 1, as they are sent
-- [2] -> epoch of the claim, or empty
-- [3] -> entries of the claimed tasks
-- [4] -> payloads that the entries do not contain, in their order
-- [5] -> 1 if more tasks are waiting that the worker may claim at once, else 0
-- [6] -> milliseconds until the next due time or end of a lease, or -1
-- [7] -> 1 if this repeats an earlier answer, else 0
-- [8] -> 1 if the session is idle although tasks were claimed, else 0
-- [9] -> 1 if a draining list is empty, else 0
-- [10] -> for each of [3] that has errors, the milliseconds since the first failure of the task, in 6 bytes
-- [11] -> time in milliseconds since 1970
-- [12] -> 1 if the claim was pushed before, else 0
-- [13] -> if the session goes idle, and the turn is no repetition and has neither verdicts nor a claim, the number of idle sessions that
--   claim the same types, including this one; else 0. A session counts if it has looked within IDLE_SIGHT, so a dead one soon stops
--   counting
--
-- Then, if the store has schedules or steps:
-- [14] -> the field `schedules` of `meta`, or nil: see `schedules.lua`
-- Then, if the store has steps:
-- [15] -> for each of [3], the number of steps of the task, 4 bytes, and the number for which it still waits, 4 bytes
-- [16] -> 1 if there may be notes for other partitions, else 0: see `children.lua`
--
-- Errors:
-- NOSESSION         -> the session has ended, or has sent a later request
-- UNDONE or PARTIAL -> a verdict could not be applied, or nothing but a failure has happened. The number is not stored, so
--   the turn can be sent again.
local idle_member = ARGV[3] .. ARGV[1]
local session, number = find_session(ARGV[1]), tonumber(ARGV[2])
if not session or number < session.number then return redis.error_reply('NOSESSION it has ended') end
-- The lists that the session drains, and those that it claims from. Both are nil if it reads only the main list. `priorities` has
-- the latter by priority, if tasks have several priorities.
local draining, leaves, priorities
local queue = ''
if session.set ~= plain_set then
  draining, leaves, queue, priorities = lists_of_set(session.set)
  -- The session must declare its set again.
  if not leaves then return redis.error_reply('NOSESSION its set is not there') end
end
local idle_key = IDLE .. ':' .. session.set
do
  -- The first write must be one that a server without memory accepts; it then accepts the others.
  local key = idle_key
  call('ZREM', key, idle_member)
end
local accepts_quarantined, lease, verdict_parts = ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[9])
-- The first due time, and the first end of a lease; nil if it has changed since it was read.
local next_due, next_lease_end = nil, nil
local has_changed, is_drained = false, false

-- Stores the turn in the session, unless it has changed nothing, or only reports a failure.
local function save()
  if epoch == '' and verdict_parts == 0 and (first_error or not has_changed) then
    if session.is_changed then save_session(ARGV[1], session) end
    return
  end
  session.number, session.claim, session.answer = number, epoch, nil
  if epoch ~= '' and not is_push then session.undelivered = session.undelivered .. epoch .. ' ' end
  save_session(ARGV[1], session)
end

touch_session(session)
if ARGV[10] ~= '' then confirm_delivery(session, ARGV[10]) end
if ARGV[12] ~= '' then confirm_pushes(session, ARGV[12]) end
if ARGV[8] == '2' then accept_pushes(session, lease) end
local is_repeated = number == session.number and not committed.claim
if number == session.number then
  -- Returns the claim of the last turn again, as far as it is still held.
  local row = session.claim ~= '' and call('HMGET', CLAIMS, session.claim, session.claim .. 'o')
  if row and row[1] and string.find(row[2] or '', '^-?%d+$', OWNER_SESSION) then
    epoch, any_quarantined, any_failed = session.claim, true, true
    -- A claim that is no longer undelivered was pushed: its message has arrived, and the worker has renewed it. No other claim is confirmed
    -- before its answer arrives.
    is_push = string.find(session.undelivered, 'p' .. epoch, 1, true) or not string.find(session.undelivered, epoch, 1, true)
    local _, rows = held_by(epoch, row[1])
    for i, it in ipairs(rows) do claimed[i] = sub(it, RUNNING_ENTRY) end
    payloads = payloads_of(claimed)
    call('ZADD', LEASE, 'XX', now + number_at('>I6', row[2], OWNER_LEASE), epoch)
    call('HDEL', CLAIMS, epoch .. 's')
  end
  if session.is_changed then save_session(ARGV[1], session) end
else
  if verdict_parts > 0 and not take_verdicts(session, 14, verdict_parts) then
    state.name = nil
    -- The effects so far are counted, and clients are notified of them.
    pcall(flush)
    pcall(lists().wake_for_committed)
    if state.is_earlier then pcall(lists().wake_one) end
    error(first_error)
  end
  if not skipped.lease then
    state.name = 'lease'
    next_lease_end = first_of(LEASE)
    if next_lease_end <= now and make_reaper()(now) then has_changed, next_lease_end = true, nil end
  end
  if not skipped.due then
    state.name = 'due'
    next_due = make_due()
    has_changed = has_changed or not next_due
  end
  if draining and #draining > 0 and not skipped.drain then
    state.name = 'drain'
    is_drained = load_drain().drain_all(draining, leaves, queue)
  end
  if queue ~= '' and queues().is_grouped(queue) and not skipped.holds then
    state.name = 'holds'
    groups().end_holds(queue)
  end
  state.name = 'claim'
  if skipped.claim then
    -- If the worker has asked for lost claims, it asks again.
    is_push = ARGV[13] == '1'
    save()
  else
    if string.find(session.undelivered, 'p', 1, true) then load_pushed_claims()(session, lease, ARGV[13] == '1', save) end
    if not is_push then claim(session, leaves, queue, priorities, lease, accepts_quarantined, save) end
    if epoch ~= '' then next_lease_end = math.min(next_lease_end or first_of(LEASE), now + lease) end
  end
end

if any_quarantined then
  for _, entry in ipairs(claimed) do accepts_quarantined = accepts_quarantined and not (is_entry(entry) and is_quarantined(entry)) end
end
-- `more` is `true` if tasks are left. `lists_left` has their lists, except for the main one. `may_be_more` is `true` if nobody knows.
local more, lists_left, next_check, goes_idle, idle_sessions, may_be_more = false, {}, 0, false, 0, false
-- The milliseconds until a task may start, if only the rate of the queue prevents that now.
local wait
-- The milliseconds until the first hold of a group is over.
local hold_wait
local function has_tasks(list, has_groups)
  local key = key_of(list)
  if has_rest ~= nil and list == claimed_list then return has_rest end
  local is_any = has_groups and selection().ring_head(list, queue, accepts_quarantined)
  if is_any == true then return true end
  if tombstones == 0 and (accepts_quarantined or not any_quarantined) then return call('LLEN', key) > 0 end
  local is_plain = selection().has_claimable(key, accepts_quarantined)
  may_be_more = may_be_more or is_any == 'perhaps' or is_plain == 'perhaps'
  return is_plain == true
end
if not skipped.next_check then
  state.name = 'next_check'
  -- Tasks that cannot start yet because of their queue do not count. If only its rate prevents a start, the answer says for how long.
  local room = math.huge
  local has_groups = queue ~= '' and queues().is_grouped(queue)
  hold_wait = has_groups and groups().hold_wait(queue) or nil
  if queue ~= '' then room, wait = queues().room(queue) end
  local may_start = room > 0 or wait
  for _, list in ipairs(may_start and leaves or {}) do
    if has_tasks(list, has_groups) then lists_left[#lists_left + 1] = list end
  end
  for _, list in ipairs(may_start and draining or {}) do
    local key = key_of(list)
    if lists().is_any_in(list, key) then lists_left[#lists_left + 1] = list end
  end
  wait = #lists_left > 0 and wait or nil
  more = #lists_left > 0 and not wait or not leaves and has_tasks(MAIN, has_groups)
  -- A claim that has found damage may have made the parent of a task due.
  next_check = math.min(not state.is_earlier and next_due or first_of(DUE), next_lease_end or first_of(LEASE))
  next_check = math.min(next_check, wait and now + wait or math.huge, hold_wait and now + hold_wait or math.huge)
  -- The next claim looks at other groups.
  if may_be_more then next_check = math.min(next_check, now + 100) end
  next_check = math.min(next_check, push_wait and now + push_wait or math.huge)
  next_check = next_check == math.huge and -1 or math.max(next_check - now, 0)
  -- The number wanted was reduced if the types of the session are paused.
  local goes_idle_below = ARGV[8] ~= '0' and tonumber(ARGV[4]) or 0
  goes_idle = not more and not first_error and #claimed < goes_idle_below
  if goes_idle then
    local key = idle_key
    -- The fraction of the score is the number of tasks for which claims may be pushed, in 1024ths. A worker that asks for lost claims, or
    -- gets one, ignores other messages with claims.
    local asks = ARGV[13] == '1' or is_push
    local accepted = ARGV[8] == '2' and not asks and not is_repeated and math.max(want - #claimed, 0) or 0
    if verdict_parts == 0 and epoch == '' and not is_repeated then idle_sessions = call('ZCOUNT', key, now - IDLE_SIGHT, now + 1) + 1 end
    call('ZADD', key, now + accepted / 1024, idle_member)
  end
end
state.name = 'flush'
if not skipped.flush then flush() end
state.name = nil
if first_error and verdict_parts == 0 and epoch == '' then
  pcall(lists().wake_for_committed)
  if state.is_earlier then pcall(lists().wake_one) end
  error(first_error)
end
if first_error then next_check = 0 end
-- While tasks are left, each woken session wakes the next. For other lists, sessions that read them are woken.
if not leaves then
  if more then pcall(wake_set, plain_set, 1) end
  if state.freed then pcall(lists().wake_for_committed) end
else
  -- A worker that has got as many tasks as it wanted may have no free permit when the rate lets the next task start, or when a hold is
  -- over.
  local is_full = #claimed >= tonumber(ARGV[4])
  for _, list in ipairs((more or is_full) and lists_left or {}) do pcall(wake, list, 1) end
  if is_full and hold_wait then pcall(lists().wake_queue, queue, 1) end
  if #state.pushed > 0 or state.freed then pcall(lists().wake_for_committed) end
end
-- The time since the first failure of each claimed task that has errors. If its row cannot be read, the time is zero, and the task runs.
local failing_for = {}
if any_failed then
  local failed = {}
  for _, entry in ipairs(claimed) do
    if has_errors(byte(entry, ENTRY_FLAGS) or 0) then failed[#failed + 1] = sub(entry, 1, ENTRY_ID_END) end
  end
  local is_read, rows = false, nil
  if #failed > 0 then is_read, rows = pcall(call, 'HMGET', ERRORS, unpack(failed)) end
  for i = 1, #failed do
    local row = is_read and rows[i] or ''
    failing_for[i] = pack('>I6', #row < 6 and 0 or math.max(now - number_at('>I6', row, 1), 0))
  end
end
local answer = {
  refused, epoch, claimed, payloads, more and not push_wait and 1 or 0, next_check, is_repeated and 1 or 0, goes_idle and #claimed > 0 and 1 or 0,
  is_drained and 1 or 0, concat(failing_for), now, is_push and 1 or 0, idle_sessions,
}
if meta[6] or meta[8] then answer[14] = meta[6] end
if meta[8] then
  local ids = {}
  for i, entry in ipairs(claimed) do ids[i] = sub(entry, 1, ENTRY_ID_END) end
  answer[15], answer[16] = #ids > 0 and numbers_of_steps(ids) or '', meta[8] == '2' and 1 or 0
end
return answer
