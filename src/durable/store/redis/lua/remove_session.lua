-- Removes sessions.
--
-- Needs: session, cards.
-- Defines: remove_session.

-- Removes a session, and marks those of its claims that may not have arrived.
local function remove_session(id, s)
  for epoch in string.gmatch(s.undelivered, '%d+') do
    if call('HEXISTS', CLAIMS, epoch .. 'o') == 1 then call('HSET', CLAIMS, epoch .. 'u', 1) end
  end
  remove_card(id)
  call('HDEL', SESSIONS, id)
  sessions[id] = false
end
