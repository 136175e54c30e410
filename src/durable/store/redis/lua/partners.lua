-- Looks for rows that no script would reach again, because the row that leads to them is missing. Each pass looks at some
-- rows of each hash. It runs only if no task is missing, so that it removes no row that the census needs.
--
-- Needs: ids, outcomes, store_time, mend.
local MOST_ROWS, MOST_BYTES = MAX_BATCH, 262144

-- Returns those of some ids that belong to no task and to no dead letter.
local function unknown_of(ids)
  local unknown, alive, died = {}, call('HMGET', ALIVE, unpack(ids)), call('ZMSCORE', DIED, unpack(ids))
  for i, id in ipairs(ids) do
    if not alive[i] and not died[i] and call('HEXISTS', DEAD, id) == 0 then unknown[#unknown + 1] = id end
  end
  return unknown
end

local function remove_all(command, key, some)
  if #some > 0 then call(command, key, unpack(some)) end
end

-- Gives dead letters that have no time of death a new one, so that they are listed again.
local function look_at_letters(ids)
  local alive, died = call('HMGET', ALIVE, unpack(ids)), call('ZMSCORE', DIED, unpack(ids))
  for i, id in ipairs(ids) do
    if alive[i] or #id ~= 16 then
      call('HDEL', DEAD, id)
    elseif not died[i] then
      call('ZADD', DIED, store_time(), id)
      is_mended('the time of a death is missing', id)
    end
  end
end

-- Returns a bin of results that are kept until `over`. If the result is in none of these bins, also returns the ids in
-- the first. While store time stands still, there may be many such bins. The result then counts as being in one of them.
local function bin_with(id, over)
  local MOST = 16
  local bins = call('ZRANGEBYSCORE', EXPIRY, over, over, 'LIMIT', 0, MOST)
  if #bins == MOST then return bins[1], nil end
  local ids = #bins > 0 and call('HMGET', EXPIRY_BINS, unpack(bins)) or {}
  for i = 1, #bins do
    if string.find(ids[i] or '', id, 1, true) then return bins[i], nil end
  end
  return bins[1] or string.format('%.0f-%.0f', over, micros), ids[1] or ''
end

-- Puts results that are in no bin into one.
local function look_at_results(ids)
  local bytes = 0
  for _, id in ipairs(ids) do
    local row = bytes < MOST_BYTES and call('HGET', RESULTS, id) or nil
    bytes = bytes + #(row or '')
    if row and (#row < 7 or not string.find(row, '^[cd]', 7)) then
      call('HDEL', RESULTS, id)
      is_mended('a result cannot be read', row)
    elseif row then
      local over = number_at('>I6', row)
      local bin, others = bin_with(id, over)
      if over <= store_time() then
        call('HDEL', RESULTS, id)
      elseif others then
        call('ZADD', EXPIRY, over, bin)
        call('HSET', EXPIRY_BINS, bin, others .. id)
        is_mended('a result is in no bin', id)
      end
    end
  end
end

-- Removes from a bin the ids whose results are lost. Returns how many results it has looked for.
local function look_into_bin(bin, most)
  local ids, kept, lost = split_ids(call('HGET', EXPIRY_BINS, bin)), {}, {}
  for i, id in ipairs(ids) do
    local to = (i > most or call('HEXISTS', RESULTS, id) == 1) and kept or lost
    to[#to + 1] = id
  end
  if #lost > 0 then
    for _, id in ipairs(unknown_of(lost)) do is_mended('a result is missing', id) end
    call('HSET', EXPIRY_BINS, bin, concat(kept))
  end
  return math.min(#ids, most)
end

local function look_at_bins(bins)
  -- Each pass begins with another bin.
  local most, first = MOST_ROWS, now % #bins
  for i = 1, #bins do
    if most > 0 then most = most - look_into_bin(bins[(first + i) % #bins + 1], most) end
  end
  for i, over in ipairs(call('ZMSCORE', EXPIRY, unpack(bins))) do
    local named = string.match(bins[i], '^(%d+)%-%d+$')
    if not over and named then
      call('ZADD', EXPIRY, named, bins[i])
    elseif not over then
      call('HDEL', EXPIRY_BINS, bins[i])
    end
  end
end

local function look_at_quarantined(ids)
  local alive, running, due = call('HMGET', ALIVE, unpack(ids)), call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
  for i, id in ipairs(ids) do
    if not alive[i] or running[i] or due[i] then call('SREM', QUARANTINED, id) end
  end
end

local function look_for_partners()
  local function some(command, key, look)
    local found = call(command, key, MOST_ROWS)
    if #found > 0 then look(found) end
  end
  some('HRANDFIELD', DEAD, look_at_letters)
  some('HRANDFIELD', RESULTS, look_at_results)
  some('HRANDFIELD', EXPIRY_BINS, look_at_bins)
  some('SRANDMEMBER', QUARANTINED, look_at_quarantined)
  some('HRANDFIELD', PAYLOADS, function(ids) remove_all('HDEL', PAYLOADS, unknown_of(ids)) end)
  some('HRANDFIELD', ERRORS, function(ids) remove_all('HDEL', ERRORS, unknown_of(ids)) end)
  some('HRANDFIELD', WATCHERS, function(ids)
    local gone, alive = {}, call('HMGET', ALIVE, unpack(ids))
    for i, id in ipairs(ids) do if not alive[i] then gone[#gone + 1] = id end end
    remove_all('HDEL', WATCHERS, gone)
  end)
  some('HRANDFIELD', CANCEL, function(ids)
    local gone, running = {}, call('HMGET', RUNNING, unpack(ids))
    for i, id in ipairs(ids) do if not running[i] then gone[#gone + 1] = id end end
    remove_all('HDEL', CANCEL, gone)
  end)
  some('ZRANDMEMBER', DIED, function(ids)
    for _, id in ipairs(ids) do if #id ~= 16 then call('ZREM', DIED, id) end end
  end)
end
