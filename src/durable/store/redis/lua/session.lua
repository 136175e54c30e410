-- Reads and writes sessions. A row of `sessions` is an array:
--
-- [1] -> number of the last request
-- [2] -> epoch of the claim that answered it, which a repetition of the request returns again
-- [3] -> epochs of claims that may not have arrived, each followed by a space; if the claim was pushed, it is preceded by `p`
-- [4] -> first id of the last enqueue; if claims may be pushed to the session, their lease in milliseconds 6: see `push_claim.lua`
-- [5] -> time of the last request
-- [6] -> client id
-- [7] -> set of types that the session claims, or empty
-- [8] -> epochs of claims that were suspected since the last request, each followed by a space
-- [9] -> newest layout that the process of the session knows, a space, and a description of the process
-- [10] -> conflicts in the answer to the last enqueue, as `enqueue.lua` returns them; absent if there were none
--
-- An unreadable row counts as missing: the client opens another session.
--
-- Needs no other part.
-- Defines: sessions, find_session, save_session.
local sessions = {}

-- Returns a session, as the same table each time, or nil if it has ended.
local function find_session(id)
  if sessions[id] ~= nil then return sessions[id] or nil end
  local packed = call('HGET', SESSIONS, id)
  if not packed then return nil end
  local is_read, row = pcall(cmsgpack.unpack, packed)
  if not is_read or type(row) ~= 'table' or (#row ~= 9 and #row ~= 10) then return nil end
  for i = 1, #row do
    if type(row[i]) ~= ((i == 1 or i == 5) and 'number' or 'string') then return nil end
  end
  local s = {
    number = row[1], claim = row[2], undelivered = row[3], first = row[4], at = row[5], client = row[6],
    set = row[7] or '', suspects = row[8] or '', process = row[9] or '', answer = row[10], row = packed,
  }
  sessions[id] = s
  return s
end

local function save_session(id, s)
  local row = cmsgpack.pack({ s.number, s.claim, s.undelivered, s.first, s.at, s.client, s.set, s.suspects, s.process, s.answer })
  call('HSET', SESSIONS, id, row)
  s.row, s.is_changed = row, false
end
