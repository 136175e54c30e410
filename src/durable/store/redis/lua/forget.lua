-- The end of a session.
--
-- Needs: session.

-- Removes a session, and marks those of its claims of which nobody knows whether they have arrived.
local function forget_session(id, s)
  for epoch in string.gmatch(s.undelivered, '%d+') do
    if call('HEXISTS', CLAIMS, epoch .. 'o') == 1 then call('HSET', CLAIMS, epoch .. 'u', 1) end
  end
  call('HDEL', SESSIONS, id)
  sessions[id] = false
end
