-- How tasks end. `flush` writes what is written once for all of them, and tells who waits: it comes last.
-- Functions are made anew whenever a script runs, so `endings` makes those that are seldom needed.
--
-- Needs: entry.
local clients, bins, counted, watched = {}, {}, {}, nil
local letters, died = {}, {}
-- Ends that are larger, alone or together, are looked at by whoever waits for them.
local MOST_TOLD, room_to_tell = 4096, 65536

local function count(what, n) counted[what] = (counted[what] or 0) + n end

-- A process is told of an end: what a look would see, or nothing, and then it looks.
local function tell(client, id, seen)
  local told = clients[client]
  if not told then
    told = {}
    clients[client] = told
  end
  if #seen > MOST_TOLD or #seen > room_to_tell then seen = '' end
  room_to_tell = room_to_tell - #seen
  told[#told + 1] = id .. pack('>I4', #seen) .. seen
end

-- Tells those who have looked at tasks.
local function tell_watchers(ids, seen)
  if watched == nil then watched = call('EXISTS', WATCHERS) == 1 end
  if not watched or #ids == 0 then return end
  local rows, over = call('HMGET', WATCHERS, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if rows[i] then
      over[#over + 1] = id
      for at = 1, #rows[i], 8 do tell(sub(rows[i], at, at + 7), id, seen[i] or '') end
    end
  end
  if #over > 0 then call('HDEL', WATCHERS, unpack(over)) end
end

-- The bin of what is kept for so long, to be removed together, and until when that is.
local function bin_of(retention)
  local over = now + retention
  local ids = bins[over]
  if not ids then
    ids = {}
    bins[over] = ids
  end
  return ids, pack('>I6', over)
end

-- The other ends, and what comes back.
local function endings()
  local function end_cancelled(id, client, retention)
    local seen = ''
    call('HDEL', ALIVE, id)
    call('HDEL', PAYLOADS, id)
    if retention > 0 then
      local ids, over = bin_of(retention)
      seen, ids[#ids + 1] = 'c', id
      call('HSET', RESULTS, id, over .. seen)
    end
    tell(client, id, seen)
    tell_watchers({ id }, { seen })
  end

  -- A letter: reason 1, length of the error 4, error, entry.
  local function die(id, entry, reason, error)
    letters[#letters + 1] = id
    letters[#letters + 1] = char(reason) .. pack('>I4', #error) .. error .. entry
    died[#died + 1] = id
    -- It may be given another life at any time: so whoever waits looks.
    tell(sub(entry, 17, 24), id, '')
  end

  -- Ids are compared as numbers: strings are compared by the rules of the server's language.
  local function by_id(a, b)
    if a[1] ~= b[1] then return a[1] > b[1] end
    if a[2] ~= b[2] then return a[2] > b[2] end
    return a[3] > b[3]
  end

  -- Puts entries before those that wait, in the order of their ids.
  local function put_first(entries)
    if #entries == 0 then return end
    local order = {}
    for i, entry in ipairs(entries) do
      if is_quarantined(entry) then call('SADD', QUARANTINED, sub(entry, 1, 16)) end
      order[i] = { number_at('>I6', entry, 1), number_at('>I6', entry, 7), number_at('>I4', entry, 13), entry }
    end
    table.sort(order, by_id)
    for i = 1, #order do order[i] = order[i][4] end
    call('LPUSH', READY, unpack(order))
  end

  return end_cancelled, die, put_first
end

local function bury()
  local scored = {}
  for i, id in ipairs(died) do scored[2 * i - 1], scored[2 * i] = now, id end
  call('HDEL', ALIVE, unpack(died))
  call('HSET', DEAD, unpack(letters))
  call('ZADD', DIED, unpack(scored))
  tell_watchers(died, {})
end

local function flush()
  if #died > 0 then bury() end
  for over, ids in pairs(bins) do
    local bin = string.format('%.0f', over)
    local before = call('HGET', EXPIRY_BINS, bin)
    call('HSET', EXPIRY_BINS, bin, (before or '') .. concat(ids))
    if not before then call('ZADD', EXPIRY, over, bin) end
  end
  for what, n in pairs(counted) do call('HINCRBY', META, what, n) end
  for client, told in pairs(clients) do
    redis.pcall('PUBLISH', BASE .. 'client:' .. client, 'e' .. concat(told))
  end
end
