-- Sessions. A row has: 1 the number of the last request; 2 the epoch of the claim with which its repetition is
-- answered; 3 the epoch of the last claim, until a later turn shows that it has arrived; 4 the first id of the
-- last enqueue; 5 when the row was written; 6 the client id; 7 the set of types that it claims, or empty.
--
-- One that cannot be read is none: its client opens another.
--
-- Needs: base.
local function find_session(id)
  local packed = call('HGET', SESSIONS, id)
  if not packed then return nil end
  local is_read, row = pcall(cmsgpack.unpack, packed)
  if not is_read or type(row) ~= 'table' or type(row[1]) ~= 'number' then return nil end
  return {
    number = row[1], claim = row[2], last = row[3], first = row[4], client = row[6], set = row[7] or '', row = packed,
  }
end

local function save_session(id, s)
  call('HSET', SESSIONS, id, cmsgpack.pack({ s.number, s.claim, s.last, s.first, now, s.client, s.set }))
end
