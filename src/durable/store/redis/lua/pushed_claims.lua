-- Claims that were pushed to the session of a turn and may not have arrived: see `push_claim.lua`.
--
-- Needs: session_activity, claim_state, claim.
-- Returns: a function that takes the pushed claims of the session into account.

-- Returns the milliseconds until a pushed claim counts as lost, given its owner: 0 if it does now.
local function confirm_wait(owner)
  if not owner or #owner < OWNER_SESSION then return 0 end
  return math.max(PUSH_CONFIRM_TIME - math.abs(now - number_at('>I6', owner, OWNER_CLAIMED_AT)), 0)
end

-- Returns the owners of these claims, and the rows in `running` of the tasks that they hold.
local function held_by_all(epochs)
  local fields, ids, owners, rows = {}, {}, {}, {}
  for i, epoch in ipairs(epochs) do fields[2 * i - 1], fields[2 * i] = epoch, epoch .. 'o' end
  -- A damaged row may name no claim.
  local claims = #epochs > 0 and call('HMGET', CLAIMS, unpack(fields)) or {}
  for i = 1, #epochs do
    local text = claims[2 * i - 1] or ''
    for at = 1, #text, 16 do ids[#ids + 1] = sub(text, at, at + 15) end
  end
  local running, last = #ids > 0 and call('HMGET', RUNNING, unpack(ids)) or {}, 0
  for i, epoch in ipairs(epochs) do
    owners[i], rows[i] = claims[2 * i], {}
    for _ = 1, #(claims[2 * i - 1] or ''), 16 do
      last = last + 1
      local row = running[last]
      if row and sub(row, 1, RUNNING_EPOCH_END) == epoch then rows[i][#rows[i] + 1] = row end
    end
  end
  return owners, rows
end

-- Subtracts the tasks of these claims from the number wanted, since they use permits of the worker. The first claim that is lost becomes
-- the claim of the turn. A claim counts as lost if the worker may have missed messages, or has not confirmed it for a second. If the other
-- claims use all permits, the worker is to send its next turn when the first of them counts as lost.
return function(session, lease, may_have_missed, save)
  local rows, first_wait = nil, PUSH_CONFIRM_TIME
  local wanted, pushed = want, {}
  for it in string.gmatch(session.undelivered, 'p(%d+) ') do pushed[#pushed + 1] = it end
  local owners, held = held_by_all(pushed)
  for i, it in ipairs(pushed) do
    if #held[i] == 0 then confirm_delivery(session, it) end
    want = math.max(want - #held[i], 0)
    local wait = may_have_missed and 0 or confirm_wait(owners[i])
    if wait == 0 and not is_push and #held[i] > 0 then epoch, rows, is_push = it, held[i], true end
    first_wait = math.min(first_wait, wait)
  end
  if not is_push then
    if want == 0 and wanted > 0 then push_wait = first_wait end
    return
  end
  for i, row in ipairs(rows) do claimed[i] = sub(row, RUNNING_ENTRY) end
  call('ZADD', LEASE, 'XX', now + lease, epoch)
  call('HDEL', CLAIMS, epoch .. 's')
  save()
  commit('claim')
end
