-- Records what a request of a session proves: that a claim has arrived, and that the worker is alive.
--
-- Needs: session.
-- Defines: confirm_delivery, confirm_pushes, accept_pushes, touch_session.

-- Records that a claim of the session has arrived, or no longer exists.
local function confirm_delivery(s, epoch)
  if s.undelivered == '' then return end
  local first, last = string.find(s.undelivered, 'p?' .. epoch .. ' ')
  if not first then return end
  s.undelivered, s.is_changed = sub(s.undelivered, 1, first - 1) .. sub(s.undelivered, last + 1), true
end

-- Records that the claims that were pushed to the session have arrived up to this epoch. They arrive in the order of their epochs.
local function confirm_pushes(s, last)
  local function is_left(epoch) return epoch > last and 'p' .. epoch .. ' ' or '' end
  local left, found = string.gsub(s.undelivered, 'p(%d+) ', is_left)
  if found > 0 and left ~= s.undelivered then s.undelivered, s.is_changed = left, true end
end

-- Records the lease of the claims that may be pushed to the session while it is idle.
local function accept_pushes(s, lease)
  local packed = pack('>I6', lease)
  if s.first ~= packed then s.first, s.is_changed = packed, true end
end

-- Records that the worker of the session is alive. Those of its claims that it does not renew therefore count as
-- abandoned. The time of the last request is stored at most once a minute, for `liveness.lua`.
local function touch_session(s)
  if math.abs(now - s.at) >= ACTIVITY_INTERVAL then s.is_changed = true end
  s.at = now
  if s.suspects == '' then return end
  for epoch in string.gmatch(s.suspects, '%d+') do
    local field = epoch .. 's'
    -- A released claim stays released.
    local is_held = tonumber(call('ZSCORE', LEASE, epoch) or '0') > 0
    if is_held and call('HEXISTS', CLAIMS, field) == 1 then call('HSET', CLAIMS, field, 2) end
  end
  s.suspects, s.is_changed = '', true
end
