-- Functions for claims. Their fields in `claims`:
--
-- <epoch>  -> ids of the claimed tasks
-- <epoch>n -> number of tasks that are still held
-- <epoch>o -> owner: see `layout.lua`
-- <epoch>s -> exists if the claim is a suspect: 2 if its session has sent a request since, else 1
-- <epoch>u -> exists if the session is gone and the claim may not have arrived
--
-- The lease of a released claim ends at 0.
--
-- Needs no other part.
-- Defines: held_by, delete_claims.

-- Returns those of the ids that the claim still holds, and their rows in `running`.
local function held_by(epoch, text)
  local all, ids, rows = {}, {}, {}
  for at = 1, #text, 16 do all[#all + 1] = sub(text, at, at + 15) end
  if #all == 0 then return ids, rows end
  for i, row in ipairs(call('HMGET', RUNNING, unpack(all))) do
    if row and sub(row, 1, RUNNING_EPOCH_END) == epoch then ids[#ids + 1], rows[#rows + 1] = all[i], row end
  end
  return ids, rows
end

local function delete_claims(epochs)
  if #epochs == 0 then return end
  local fields = {}
  for i, epoch in ipairs(epochs) do
    local at = 5 * i
    fields[at - 4], fields[at - 3], fields[at - 2], fields[at - 1], fields[at] = epoch, epoch .. 'n', epoch .. 'o', epoch .. 's', epoch .. 'u'
  end
  call('HDEL', CLAIMS, unpack(fields))
  call('ZREM', LEASE, unpack(epochs))
end
