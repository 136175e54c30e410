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
  if not is_read or type(row) ~= 'table' or #row ~= 8 then return nil end
  if type(row[1]) ~= 'number' or type(row[3]) ~= 'string' or type(row[7]) ~= 'string' then return nil end
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
