-- Notes which claims of a session have arrived, and which its worker does not renew, when the session sends a request.
--
-- Needs: session.

-- Records that a claim of the session has arrived, or no longer exists.
local function deliver(s, epoch)
  if s.undelivered == '' then return end
  local first, last = string.find(s.undelivered, epoch .. ' ', 1, true)
  if not first then return end
  s.undelivered, s.is_changed = sub(s.undelivered, 1, first - 1) .. sub(s.undelivered, last + 1), true
end

-- Records that the worker of the session lives, so those of its claims that it does not renew count as abandoned. The
-- time at which it was heard is stored once a minute, for `liveness.lua`.
local function hear(s)
  if math.abs(now - s.at) >= HEARD_EVERY then s.is_changed = true end
  s.at = now
  if s.suspects == '' then return end
  for epoch in string.gmatch(s.suspects, '%d+') do
    local field = epoch .. 's'
    -- A claim that was given up stays given up.
    local is_held = tonumber(call('ZSCORE', LEASE, epoch) or '0') > 0
    if is_held and call('HEXISTS', CLAIMS, field) == 1 then call('HSET', CLAIMS, field, 2) end
  end
  s.suspects, s.is_changed = '', true
end
