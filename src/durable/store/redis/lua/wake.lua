-- Wakes idle workers, the last first, since it is the most likely to be alive. A wake that nobody hears goes to
-- the next. The members of `idle:<set>` are: client id 8, session.
--
-- Needs: base, lists.
local function wake_of(set, most)
  local key = IDLE .. ':' .. set
  for _ = 1, 64 do
    if most <= 0 then return 0 end
    local idle = call('ZPOPMAX', key)[1]
    if not idle then return most end
    local reached = redis.pcall('PUBLISH', BASE .. 'client:' .. sub(idle, 1, 8), 'w')
    if type(reached) == 'table' then return 0 end
    if reached > 0 then most = most - 1 end
  end
  return most
end

-- Wakes some of those that belong to one of these sets, 8 bytes each.
local function wake_any(sets, most)
  for at = 1, #sets, 8 do
    if most <= 0 then return end
    most = wake_of(sub(sets, at, at + 7), most)
  end
end

-- Wakes some of those that read a list.
local function wake(list, most)
  if plain and list == MAIN then return wake_of(plain_set, most) end
  return wake_any(call('HGET', ROUTES, 'l' .. list) or '', most)
end

-- The same, for tasks that were pushed.
local function wake_for(groups)
  for _, group in ipairs(groups) do wake(group.list, math.min(#group.entries, 4)) end
end

-- Wakes one that is idle, whatever it knows: a task is due earlier than those that wait believe.
local function wake_one()
  wake_any(plain_set or call('HGET', ROUTES, 'sets') or '', 1)
end
