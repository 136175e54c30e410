-- Sessions. A row has: 1 the number of the last request; 2 the epoch of the claim with which its repetition is
-- answered; 3 the epochs of claims of which nobody knows whether they have arrived, a space behind each; 4 the first
-- id of the last enqueue; 5 when it was last heard; 6 the client id; 7 the set of types that it claims, or empty; 8
-- the epochs of claims that were suspected since it was last heard, a space behind each.
--
-- One that cannot be read is none: its client opens another.
--
-- Needs: base.
local sessions = {}

-- Returns a session, the same table each time; nothing if it has ended.
local function find_session(id)
  if sessions[id] ~= nil then return sessions[id] or nil end
  local packed = call('HGET', SESSIONS, id)
  if not packed then return nil end
  local is_read, row = pcall(cmsgpack.unpack, packed)
  if not is_read or type(row) ~= 'table' then return nil end
  if type(row[1]) ~= 'number' or type(row[3]) ~= 'string' then return nil end
  local s = {
    number = row[1], claim = row[2], undelivered = row[3], first = row[4], at = row[5], client = row[6],
    set = row[7] or '', suspects = row[8] or '', row = packed,
  }
  sessions[id] = s
  return s
end

local function save_session(id, s)
  local row = cmsgpack.pack({ s.number, s.claim, s.undelivered, s.first, s.at, s.client, s.set, s.suspects })
  call('HSET', SESSIONS, id, row)
  s.row, s.is_changed = row, false
end

-- A claim of the session has arrived, or is no longer there.
local function deliver(s, epoch)
  if s.undelivered == '' then return end
  local first, last = string.find(s.undelivered, epoch .. ' ', 1, true)
  if not first then return end
  s.undelivered, s.is_changed = sub(s.undelivered, 1, first - 1) .. sub(s.undelivered, last + 1), true
end

-- The worker of the session lives: those of its claims that it does not renew are abandoned. That it was heard is
-- written down once a minute, for `liveness.lua`.
local function hear(s)
  if math.abs(now - s.at) >= HEARD_EVERY then s.is_changed = true end
  s.at = now
  if s.suspects == '' then return end
  for epoch in string.gmatch(s.suspects, '%d+') do
    local field = epoch .. 's'
    -- One that was given up stays that.
    local is_held = tonumber(call('ZSCORE', LEASE, epoch) or '0') > 0
    if is_held and call('HEXISTS', CLAIMS, field) == 1 then call('HSET', CLAIMS, field, 2) end
  end
  s.suspects, s.is_changed = '', true
end

-- The session is removed: what is known of its claims is noted with them.
local function forget_session(id, s)
  for epoch in string.gmatch(s.undelivered, '%d+') do
    if call('HEXISTS', CLAIMS, epoch .. 'o') == 1 then call('HSET', CLAIMS, epoch .. 'u', 1) end
  end
  call('HDEL', SESSIONS, id)
  sessions[id] = false
end
