-- Removes what is kept no longer, at most so many things. Whether there is more.
--
-- ARGV: how many.
local budget = math.min(tonumber(ARGV[1]), 2 * MAX_BATCH)

-- One bin of ends: those that are over; one that was stored again meanwhile may be kept for longer. To
-- look at a large one costs more.
local function empty_bin(bin)
  local ids = call('HGET', BINS, bin)
  for at = 1, #ids, 16 do
    if budget <= 0 then
      call('HSET', BINS, bin, sub(ids, at))
      return false
    end
    local id = sub(ids, at, at + 15)
    local row = call('HGET', KEPT, id)
    if row and number_at('>I6', row) <= now then call('HDEL', KEPT, id) end
    budget = budget - 1 - math.floor(#(row or '') / 4096)
  end
  call('HDEL', BINS, bin)
  call('ZREM', OVER, bin)
  return true
end

-- A lease that ends later than it can was given before the clock was set back.
local function pull_in()
  local last = call('ZRANGE', LEASE, -1, -1, 'WITHSCORES')
  if not last[1] or tonumber(last[2]) <= now + 60000 then return end
  for _, it in ipairs(call('ZRANGEBYSCORE', LEASE, now + 60000, '+inf', 'LIMIT', 0, 64)) do
    local owner = call('HGET', CLAIMS, it .. 'o')
    local length = owner and number_at('>I6', owner, 9) or 0
    if tonumber(call('ZSCORE', LEASE, it)) > now + length + 60000 then
      call('ZADD', LEASE, 'XX', now + length, it)
    end
  end
end

local function remove_letters(ids)
  for _, id in ipairs(ids) do
    if budget == 0 then return true end
    call('HDEL', DEAD, id)
    call('ZREM', DIED, id)
    call('HDEL', BODY, id)
    budget = budget - 1
  end
  return false
end

call('ZREM', LEASE, '')
pull_in()
local more = false
while true do
  local bin = call('ZRANGEBYSCORE', OVER, '-inf', now, 'LIMIT', 0, 1)[1]
  if not bin then break end
  more = budget <= 0 or not empty_bin(bin)
  if more then break end
end
budget = math.max(budget, 0)
local old = call('ZRANGEBYSCORE', DIED, '-inf', now - DEAD_RETENTION, 'LIMIT', 0, budget + 1)
more = remove_letters(old) or more
local surplus = call('ZCARD', DIED) - MAX_DEAD
if surplus > 0 then
  more = remove_letters(call('ZRANGE', DIED, 0, math.min(surplus, budget + 1) - 1)) or more
end

-- Whether a process has gone, as far as can be seen: nobody hears what it is told.
local function is_gone(box)
  local heard = redis.pcall('PUBSUB', 'NUMSUB', BASE .. 'in:' .. box)
  return heard.err ~= nil or heard[2] == 0
end

-- Sessions that have written nothing for a day, of processes that have gone. One that is there all the
-- same is told that its session has ended, and opens another.
local cursor = call('HGET', META, 'cursor') or '0'
local scan = call('HSCAN', SESS, cursor, 'COUNT', 64)
if scan[1] ~= cursor then call('HSET', META, 'cursor', scan[1]) end
for i = 1, #scan[2], 2 do
  local row = cmsgpack.unpack(scan[2][i + 1])
  if row[5] + DAY <= now and is_gone(row[6]) then call('HDEL', SESS, scan[2][i]) end
end
call('ZREMRANGEBYSCORE', PARK, '-inf', now - DAY)
return more and 1 or 0
