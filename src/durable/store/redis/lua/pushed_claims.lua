-- Claims that were pushed to the session of a turn and may not have arrived: see `push_claim.lua`.
--
-- Needs: session_activity, claim_state, claim, claims.

-- Subtracts the tasks of these claims from the number wanted, since they use permits of the worker. If the worker may have missed messages,
-- the first of these claims becomes the claim of the turn.
return function(session, lease, may_have_missed, save)
  local rows
  for pushed in string.gmatch(session.undelivered, 'p(%d+) ') do
    local _, held = held_by(pushed, call('HGET', CLAIMS, pushed) or '')
    if #held == 0 then confirm_delivery(session, pushed) end
    want = math.max(want - #held, 0)
    if may_have_missed and not is_push and #held > 0 then epoch, rows, is_push = pushed, held, true end
  end
  if not is_push then return end
  for i, row in ipairs(rows) do claimed[i] = sub(row, RUNNING_ENTRY) end
  call('ZADD', LEASE, 'XX', now + lease, epoch)
  call('HDEL', CLAIMS, epoch .. 's')
  save()
  commit('claim')
end
