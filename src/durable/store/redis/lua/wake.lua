-- Wakes some of those who are parked, the last first: it is the most likely to be alive. A wake that
-- reaches nobody goes to the next.
local function wake(most)
  for _ = 1, 64 do
    if most <= 0 then return end
    local box = call('ZPOPMAX', PARK)[1]
    if not box then return end
    local reached = redis.pcall('PUBLISH', BASE .. 'in:' .. box, 'w')
    if type(reached) == 'table' then return end
    if reached > 0 then most = most - 1 end
  end
end
