-- Claims that were pushed to the session of a turn and may not have arrived: see `push_claim.lua`.
--
-- Needs: session_activity, claim_state, claim, claims.

-- Returns the milliseconds until a pushed claim counts as lost, given its owner: 0 if it does now.
local function confirm_wait(owner)
  if not owner or #owner < OWNER_SESSION then return 0 end
  return math.max(PUSH_CONFIRM_TIME - math.abs(now - number_at('>I6', owner, OWNER_CLAIMED_AT)), 0)
end

-- Subtracts the tasks of these claims from the number wanted, since they use permits of the worker. The first claim that is lost becomes
-- the claim of the turn. A claim counts as lost if the worker may have missed messages, or has not confirmed it for a second. If the other
-- claims use all permits, the worker is to send its next turn when the first of them counts as lost.
return function(session, lease, may_have_missed, save)
  local rows, first_wait = nil, PUSH_CONFIRM_TIME
  local wanted = want
  for pushed in string.gmatch(session.undelivered, 'p(%d+) ') do
    local claim = call('HMGET', CLAIMS, pushed, pushed .. 'o')
    local _, held = held_by(pushed, claim[1] or '')
    if #held == 0 then confirm_delivery(session, pushed) end
    want = math.max(want - #held, 0)
    local wait = may_have_missed and 0 or confirm_wait(claim[2])
    if wait == 0 and not is_push and #held > 0 then epoch, rows, is_push = pushed, held, true end
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
