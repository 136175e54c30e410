-- What has become of tasks. Whoever looks at one that is alive, and not its own, is told of its end:
-- that is all that this writes. As many answers as fit, in the order of the ids.
--
-- ARGV: box, whether to watch, most bytes, how many, their ids.
local box, budget, total = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local ids, seen, foreign = slice(5, total), {}, {}
if total == 0 then return seen end
local alive = call('HMGET', ALIVE, unpack(ids))
local running = call('HMGET', RUN, unpack(ids))
local due = call('ZMSCORE', DUE, unpack(ids))
local since = call('ZMSCORE', DIED, unpack(ids))

-- A letter, without the entry; what is kept no longer is not there.
local function letter(id, died)
  if not died or died + DEAD_RETENTION <= now then return 'a' end
  local row = call('HGET', DEAD, id)
  return 'x' .. sub(row, 1, 1) .. sub(row, 6, 5 + number_at('>I4', row, 2))
end

for i, id in ipairs(ids) do
  if budget < 0 then break end
  if alive[i] then
    seen[i] = running[i] and 'r' or due[i] and 'l' or 'w'
    if sub(alive[i], 1, 8) ~= box then foreign[#foreign + 1] = id end
  else
    -- Read one by one, as far as there is room: they may be large.
    local kept = call('HGET', KEPT, id)
    seen[i] = kept and number_at('>I6', kept) > now and sub(kept, 7) or letter(id, since[i])
  end
  budget = budget - #seen[i]
end

if #foreign > 0 and ARGV[2] == '1' then
  call('HDEL', WATCH, '')
  for i, row in ipairs(call('HMGET', WATCH, unpack(foreign))) do
    local is_new = true
    for at = 1, #(row or ''), 8 do is_new = is_new and sub(row, at, at + 7) ~= box end
    if is_new then call('HSET', WATCH, foreign[i], (row or '') .. box) end
  end
end
return seen
