-- The end of a session.
--
-- Needs: session.

-- Removes a session. What it knows of its claims is recorded with the claims.
local function forget_session(id, s)
  for epoch in string.gmatch(s.undelivered, '%d+') do
    if call('HEXISTS', CLAIMS, epoch .. 'o') == 1 then call('HSET', CLAIMS, epoch .. 'u', 1) end
  end
  call('HDEL', SESSIONS, id)
  sessions[id] = false
end
