-- Claims that are taken back.
local function drop_claim(epoch)
  call('HDEL', CLAIMS, epoch, epoch .. 'n', epoch .. 'o', epoch .. 's', epoch .. 'b')
  call('ZREM', LEASE, epoch)
end

local function has_arrived(epoch, owner)
  local session = find_session(sub(owner, 15))
  return session ~= nil and session.last ~= epoch
end

-- A task that was taken back: the entry to be put first, unless it has ended.
local function take_back(id, entry, arrived)
  if call('HDEL', CANCEL, id) == 1 then
    count('cancelled', 1)
    end_cancelled(id, sub(entry, 17, 24), number_at('>I6', entry, 25))
    return nil
  end
  local at = arrived and 37 or 39
  local times = math.min(number_at('>I2', entry, at) + 1, 65535)
  entry = sub(entry, 1, at - 1) .. pack('>I2', times) .. sub(entry, at + 2)
  count(arrived and 'crashed' or 'lost', 1)
  if arrived and times > number_at('>I2', entry, 31) then
    die(id, entry, CRASHES, '')
    return nil
  end
  return entry
end

-- Takes back all that a claim holds; how much.
local function reap(epoch)
  local claim = call('HMGET', CLAIMS, epoch, epoch .. 'o', epoch .. 'b')
  if not claim[1] then
    drop_claim(epoch)
    return 0
  end
  local arrived = claim[3] or has_arrived(epoch, claim[2])
  local ids, entries = held(epoch, claim[1])
  local back = {}
  drop_claim(epoch)
  if #ids > 0 then call('HDEL', RUN, unpack(ids)) end
  for i, id in ipairs(ids) do back[#back + 1] = take_back(id, entries[i], arrived) end
  put_first(back)
  return #ids
end

-- The claims whose lease is over by then: first those that were given up, then by epoch.
local function late(by)
  local found = {}
  local rows = call('ZRANGEBYSCORE', LEASE, '-inf', by, 'WITHSCORES', 'LIMIT', 0, 64)
  for i = 1, #rows, 2 do
    local given_up = tonumber(rows[i + 1]) == 0
    found[#found + 1] = { given_up and 0 or 1, tonumber(rows[i]), rows[i] }
  end
  table.sort(found, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  return found
end

-- Suspects claims whose lease is over by then, and takes back those that are suspects already, of
-- about so many tasks. Whether there were any.
local function reap_late(by)
  local found, budget = late(by), MAX_BATCH
  for _, it in ipairs(found) do
    local epoch = it[3]
    local owner = call('HGET', CLAIMS, epoch .. 'o')
    if owner and call('HSETNX', CLAIMS, epoch .. 's', 1) == 1 then
      call('ZADD', LEASE, 'XX', now + math.floor(number_at('>I6', owner, 9) / 3), epoch)
    elseif budget > 0 then
      budget = budget - reap(epoch)
    end
  end
  return #found > 0
end
