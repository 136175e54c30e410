-- What has become of tasks. Whoever looks at one that is alive, and not its own, is told of its end:
-- that is all that this writes. As many answers as fit, in the order of the ids.
--
-- ARGV: box, whether to watch, most bytes, how many, their ids.
local box, budget, total = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local ids, seen, foreign = { unpack(ARGV, 5, 4 + total) }, {}, {}
if total == 0 then return seen end
local alive = call('HMGET', ALIVE, unpack(ids))

-- Asks for some of the ids only: what is answered, by id.
local function ask(command, key, some)
  local found = {}
  if #some == 0 then return found end
  for i, answer in ipairs(call(command, key, unpack(some))) do found[some[i]] = answer end
  return found
end
local there, gone = {}, {}
for i, id in ipairs(ids) do
  if alive[i] then there[#there + 1] = id else gone[#gone + 1] = id end
end
local running, due = ask('HMGET', RUN, there), ask('ZMSCORE', DUE, there)
local kept, since = ask('HMGET', KEPT, gone), ask('ZMSCORE', DIED, gone)

-- A letter, without the entry; what is kept no longer is not there.
local function letter(id, died)
  if not died or died + DEAD_RETENTION <= now then return 'a' end
  local row = call('HGET', DEAD, id)
  return 'x' .. sub(row, 1, 1) .. sub(row, 6, 5 + number_at('>I4', row, 2))
end

for i, id in ipairs(ids) do
  if budget < 0 then break end
  if alive[i] then
    seen[i] = running[id] and 'r' or due[id] and 'l' or 'w'
    if sub(alive[i], 1, 8) ~= box then foreign[#foreign + 1] = id end
  elseif kept[id] and number_at('>I6', kept[id]) > now then
    seen[i] = sub(kept[id], 7)
  else
    seen[i] = letter(id, since[id])
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
