-- Wakes some of those who are parked, the last first: it is the most likely to be alive. A wake that
-- reaches nobody goes to the next. Parked are sessions: the box of the process, and the session.
local function wake(most)
  for _ = 1, 64 do
    if most <= 0 then return end
    local parked = call('ZPOPMAX', PARK)[1]
    if not parked then return end
    local reached = redis.pcall('PUBLISH', BASE .. 'in:' .. sub(parked, 1, 8), 'w')
    if type(reached) == 'table' then return end
    if reached > 0 then most = most - 1 end
  end
end
