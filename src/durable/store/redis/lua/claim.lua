-- Claims. One has its ids; `n`, how many of them are held; `o`, box 8, lease 6 and session; `s`, it is a
-- suspect; `b`, it has arrived. Its lease is over at once, at zero, if it was given up.
local function split_ids(text)
  local ids = {}
  for at = 1, #text, 16 do ids[#ids + 1] = sub(text, at, at + 15) end
  return ids
end

-- What a claim still holds: the ids, and the entries.
local function held(epoch, text)
  local all, ids, entries = split_ids(text), {}, {}
  for i, row in ipairs(call('HMGET', RUN, unpack(all))) do
    if row and sub(row, 1, 16) == epoch then
      ids[#ids + 1], entries[#entries + 1] = all[i], sub(row, 17)
    end
  end
  return ids, entries
end
