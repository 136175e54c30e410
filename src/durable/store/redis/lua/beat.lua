-- Renews the leases of claims, and notes that they have arrived. The first write is one that also a
-- server takes that is out of memory; after it, it takes the others.
--
-- ARGV: how many, their epochs.
call('ZREM', LEASE, '')
local lost, cancelled = {}, {}
local flagged = call('EXISTS', CANCEL) == 1
for i = 1, tonumber(ARGV[1]) do
  local epoch = ARGV[1 + i]
  local claim = call('HMGET', CLAIMS, epoch .. 'o', epoch .. 'b', epoch .. 's', epoch)
  local over = tonumber(call('ZSCORE', LEASE, epoch) or '0')
  if not claim[1] then
    lost[#lost + 1] = epoch
  else
    if not claim[2] then call('HSET', CLAIMS, epoch .. 'b', 1) end
    -- One that was given up is not renewed.
    if over > 0 then
      call('ZADD', LEASE, 'XX', now + number_at('>I6', claim[1], 9), epoch)
      if claim[3] then call('HDEL', CLAIMS, epoch .. 's') end
    end
    if flagged then
      local ids = held(epoch, claim[4])
      for _, id in ipairs(ids) do
        if call('HEXISTS', CANCEL, id) == 1 then cancelled[#cancelled + 1] = id end
      end
    end
  end
end
return { lost, cancelled }
