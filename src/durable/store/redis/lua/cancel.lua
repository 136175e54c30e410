-- Cancels tasks: those that wait or are delayed at once, those that run when their worker says.
--
-- ARGV: how many, their ids.
call('ZREM', LEASE, '')
local found, holders = 0, {}
for i = 1, tonumber(ARGV[1]) do
  local id = ARGV[1 + i]
  local alive = call('HGET', ALIVE, id)
  local row = alive and call('HGET', RUN, id)
  if row then
    local epoch = sub(row, 1, 16)
    local owner = call('HGET', CLAIMS, epoch .. 'o')
    call('HSET', CANCEL, id, epoch)
    local box = sub(owner, 1, 8)
    holders[box] = (holders[box] or '') .. id
  elseif alive then
    if call('ZREM', DUE, id) == 1 then
      call('HDEL', LATER, id)
    else
      -- It stays in the line until a claim comes to it.
      call('HINCRBY', TOMBS, id, 1)
      call('HINCRBY', META, 'tombs', 1)
      call('SREM', RISKY, id)
    end
    end_cancelled(id, sub(alive, 1, 8), number_at('>I6', alive, 9))
  end
  if alive then found = found + 1 end
end
flush()
for box, ids in pairs(holders) do redis.pcall('PUBLISH', BASE .. 'in:' .. box, 'c' .. ids) end
return found
