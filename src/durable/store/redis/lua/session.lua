-- Sessions. A row: the number of the last request; the claim that its repetition is answered with; the
-- last claim, as long as no later turn says that it has arrived; the first task of the last enqueue;
-- when it was written; the box of its process.
local function find_session(id)
  local row = call('HGET', SESS, id)
  if not row then return nil end
  row = cmsgpack.unpack(row)
  return { number = row[1], claim = row[2], last = row[3], first = row[4], box = row[6] }
end

local function save_session(id, s)
  call('HSET', SESS, id, cmsgpack.pack({ s.number, s.claim, s.last, s.first, now, s.box }))
end
