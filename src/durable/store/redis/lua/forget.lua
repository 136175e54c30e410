-- The end of a session.
--
-- Needs: session.

-- The session is removed: what is known of its claims is noted with them.
local function forget_session(id, s)
  for epoch in string.gmatch(s.undelivered, '%d+') do
    if call('HEXISTS', CLAIMS, epoch .. 'o') == 1 then call('HSET', CLAIMS, epoch .. 'u', 1) end
  end
  call('HDEL', SESSIONS, id)
  sessions[id] = false
end
