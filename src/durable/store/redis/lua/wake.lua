-- Wakes idle workers, the last first, since it is the most likely to be alive. A wake that nobody hears goes to
-- the next. The members of `idle` are: client id 8, session.
--
-- Needs: base.
local function wake(most)
  for _ = 1, 64 do
    if most <= 0 then return end
    local parked = call('ZPOPMAX', IDLE)[1]
    if not parked then return end
    local reached = redis.pcall('PUBLISH', BASE .. 'client:' .. sub(parked, 1, 8), 'w')
    if type(reached) == 'table' then return end
    if reached > 0 then most = most - 1 end
  end
end
