-- Claims. Their fields in `claims`: <epoch>, the ids; <epoch>n, how many of them are held; <epoch>o, the owner:
-- client id 8, lease 6, session; <epoch>s, there if the claim is a suspect: 2 if its session was heard since, or else
-- 1; <epoch>u, there if its session is gone, and it is unknown whether the claim has arrived. The lease of a claim that
-- was given up is over at zero.
--
-- Needs: base.

-- Returns what a claim of these ids still holds: the ids, and their rows in `running`: epoch 16, entry.
local function held(epoch, text)
  local all, ids, rows = {}, {}, {}
  for at = 1, #text, 16 do all[#all + 1] = sub(text, at, at + 15) end
  if #all == 0 then return ids, rows end
  for i, row in ipairs(call('HMGET', RUNNING, unpack(all))) do
    if row and sub(row, 1, 16) == epoch then ids[#ids + 1], rows[#rows + 1] = all[i], row end
  end
  return ids, rows
end

local function drop_claim(epoch)
  call('HDEL', CLAIMS, epoch, epoch .. 'n', epoch .. 'o', epoch .. 's', epoch .. 'u')
  call('ZREM', LEASE, epoch)
end
