-- Repairs or removes rows that no script would reach again, because the row that leads to them is missing. Each pass
-- examines some rows of each hash. It runs only if no task is missing, so that it removes no row that the census needs.
--
-- Needs: ids, store_time, repair, group_repair, steps.
-- Defines: repair_orphans.
local ROWS_PER_PASS, RESULT_BYTES_PER_PASS = MAX_BATCH, 262144

-- Returns those ids that belong to no task and to no dead letter.
local function without_task(ids)
  local unknown, alive, died = {}, call('HMGET', ALIVE, unpack(ids)), call('ZMSCORE', DIED, unpack(ids))
  for i, id in ipairs(ids) do
    if not alive[i] and not died[i] and call('HEXISTS', DEAD, id) == 0 then unknown[#unknown + 1] = id end
  end
  return unknown
end

local function remove_all(command, key, some)
  if #some > 0 then call(command, key, unpack(some)) end
end

-- Gives dead letters without a time of death a new one, so that they are listed again.
local function check_dead_letters(ids)
  local alive, died = call('HMGET', ALIVE, unpack(ids)), call('ZMSCORE', DIED, unpack(ids))
  for i, id in ipairs(ids) do
    if alive[i] or #id ~= 16 then
      call('HDEL', DEAD, id)
    elseif not died[i] then
      call('ZADD', DIED, store_time(), id)
      record_repair('the time of a death is missing', id)
    end
  end
end

-- Returns at most `most` bins for results with this expiry and, if there are fewer, the ids in each, and a table with the bin of each id. A
-- bin may be long, and most results of a pass may share one, so `seen` caches the answer for each expiry.
local function bins_for(expiry, most, seen)
  if not seen[expiry] then
    local bins, bin_of = call('ZRANGEBYSCORE', EXPIRY, expiry, expiry, 'LIMIT', 0, most), {}
    local ids = #bins > 0 and #bins < most and call('HMGET', EXPIRY_BINS, unpack(bins)) or {}
    for i, some in ipairs(ids) do
      for _, id in ipairs(split_ids(some or '')) do bin_of[id] = bins[i] end
    end
    seen[expiry] = { bins, ids, bin_of }
  end
  return unpack(seen[expiry])
end

-- Returns a bin for results with this expiry. If no such bin contains the id, also returns the ids in the first of them.
-- While store time stands still, there may be many such bins; the id then counts as being in one of them.
local function bin_with(id, expiry, seen)
  local MAX_BINS = 16
  local bins, ids, bin_of = bins_for(expiry, MAX_BINS, seen)
  if #bins == MAX_BINS then return bins[1], nil end
  if bin_of[id] then return bin_of[id], nil end
  -- In a damaged bin, an id may begin anywhere.
  for i = 1, #bins do
    if string.find(ids[i] or '', id, 1, true) then return bins[i], nil end
  end
  return bins[1] or string.format('%.0f-%.0f', expiry, micros), ids[1] or ''
end

-- Adds results that are in no bin to one.
local function check_results(ids)
  local bytes, seen = 0, {}
  for _, id in ipairs(ids) do
    local row = bytes < RESULT_BYTES_PER_PASS and call('HGET', RESULTS, id) or nil
    bytes = bytes + #(row or '')
    if row and (#row < RESULT_STATE or not string.find(row, '^[cd]', RESULT_STATE)) then
      call('HDEL', RESULTS, id)
      record_repair('a result cannot be read', row)
    elseif row then
      local expiry = number_at('>I6', row)
      local bin, others = bin_with(id, expiry, seen)
      if expiry <= store_time() then
        call('HDEL', RESULTS, id)
      elseif others then
        call('ZADD', EXPIRY, expiry, bin)
        call('HSET', EXPIRY_BINS, bin, others .. id)
        seen[expiry] = nil
        record_repair('a result is in no bin', id)
      end
    end
  end
end

-- Removes from a bin the ids whose results are lost. Returns the number of results examined.
local function check_bin(bin, most)
  local ids, remaining, lost = split_ids(call('HGET', EXPIRY_BINS, bin)), {}, {}
  for i, id in ipairs(ids) do
    local to = (i > most or call('HEXISTS', RESULTS, id) == 1) and remaining or lost
    to[#to + 1] = id
  end
  if #lost > 0 then
    for _, id in ipairs(without_task(lost)) do record_repair('a result is missing', id) end
    call('HSET', EXPIRY_BINS, bin, concat(remaining))
  end
  return math.min(#ids, most)
end

local function check_bins(bins)
  -- Each pass begins with another bin.
  local most, first = ROWS_PER_PASS, now % #bins
  for i = 1, #bins do
    if most > 0 then most = most - check_bin(bins[(first + i) % #bins + 1], most) end
  end
  for i, expiry in ipairs(call('ZMSCORE', EXPIRY, unpack(bins))) do
    local named = string.match(bins[i], '^(%d+)%-%d+$')
    if not expiry and named then
      call('ZADD', EXPIRY, named, bins[i])
    elseif not expiry then
      call('HDEL', EXPIRY_BINS, bins[i])
    end
  end
end

local function check_quarantined(ids)
  local alive, running, due = call('HMGET', ALIVE, unpack(ids)), call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
  for i, id in ipairs(ids) do
    if not alive[i] or running[i] or due[i] then call('SREM', QUARANTINED, id) end
  end
end

-- Takes permits back from tasks that do not run.
local function check_permits(queue)
  local key, gone = PERMITS .. ':' .. queue, {}
  local ids = call('SRANDMEMBER', key, ROWS_PER_PASS)
  if #ids == 0 then return end
  for i, row in ipairs(call('HMGET', RUNNING, unpack(ids))) do
    if not row then gone[#gone + 1] = ids[i] end
  end
  if #gone == 0 then return end
  call('SREM', key, unpack(gone))
  record_repair('tasks that do not run have permits of a queue', gone[1])
  state.freed = state.freed or {}
  state.freed[queue] = true
end

-- Removes types whose rows cannot be read and, if there are very many, types that no client has recorded for a day. A program that has a
-- queue for each of its users records that many.
local function check_types(kinds)
  local gone, oldest = {}, call('HLEN', TYPES) > MAX_TYPES and now - DAY or 0
  for i, row in ipairs(call('HMGET', TYPES, unpack(kinds))) do
    if not row or #row < TYPE_QUEUE_LENGTH or number_at('>I6', row) < oldest then gone[#gone + 1] = kinds[i] end
  end
  remove_all('HDEL', TYPES, gone)
end

-- Removes statistics that are no longer kept, statistics that are in the future, and the numbers of the last reports of processes that have
-- reported nothing for a day.
local function check_stats(fields)
  local gone, units = {}, { m = { 60000, STAT_MINUTES }, h = { 3600000, STAT_HOURS } }
  local function is_kept(field)
    local unit = units[sub(field, 1, 1)]
    if unit then
      local age = math.floor(now / unit[1]) - (tonumber(sub(field, 2)) or math.huge)
      return age >= 0 and age < unit[2]
    end
    local row = sub(field, 1, 1) == 'r' and call('HGET', STATS, field) or ''
    return #row == 12 and math.abs(now - number_at('>I6', row, 7)) <= DAY
  end
  for _, field in ipairs(fields) do
    if not is_kept(field) then gone[#gone + 1] = field end
  end
  remove_all('HDEL', STATS, gone)
end

-- Removes the steps of ended tasks, and values of other types that are in the place of steps. Their tasks have had steps, as `steps` says,
-- so their next runs fail.
local function check_steps(ids)
  remove_steps(without_task(ids))
  for _, id in ipairs(ids) do
    local key = STEPS .. ':' .. id
    remove_other_type('HLEN', key, 'the steps of a task are a key of another type')
  end
end

-- Removes notes that cannot be read. The parents look for the ends of these children when they run again.
local function check_notes(children)
  for i, note in ipairs(call('HMGET', NOTES, unpack(children))) do
    if note and (#note < 17 or #children[i] ~= 16) then
      call('HDEL', NOTES, children[i])
      record_repair('the end of a child cannot be read', note)
    end
  end
end

local function repair_orphans()
  each_queue(check_permits)
  repair_groups()
  local function some(command, key, check)
    local found = call(command, key, ROWS_PER_PASS)
    if #found > 0 then check(found) end
  end
  some('HRANDFIELD', DEAD, check_dead_letters)
  some('HRANDFIELD', RESULTS, check_results)
  some('HRANDFIELD', EXPIRY_BINS, check_bins)
  some('SRANDMEMBER', QUARANTINED, check_quarantined)
  some('HRANDFIELD', PAYLOADS, function(ids) remove_all('HDEL', PAYLOADS, without_task(ids)) end)
  some('HRANDFIELD', ERRORS, function(ids) remove_all('HDEL', ERRORS, without_task(ids)) end)
  local function without_row(ids, rows)
    local gone = {}
    for i, id in ipairs(ids) do if not rows[i] then gone[#gone + 1] = id end end
    return gone
  end
  some('HRANDFIELD', WATCHERS, function(ids) remove_all('HDEL', WATCHERS, without_row(ids, call('HMGET', ALIVE, unpack(ids)))) end)
  some('HRANDFIELD', PROGRESS, function(ids) remove_all('HDEL', PROGRESS, without_row(ids, call('HMGET', ALIVE, unpack(ids)))) end)
  some('HRANDFIELD', STEPS, check_steps)
  some('HRANDFIELD', NOTES, check_notes)
  some('HRANDFIELD', CANCEL, function(ids) remove_all('HDEL', CANCEL, without_row(ids, call('HMGET', RUNNING, unpack(ids)))) end)
  some('HRANDFIELD', TYPES, check_types)
  some('HRANDFIELD', STATS, check_stats)
  some('ZRANDMEMBER', DIED, function(ids)
    for _, id in ipairs(ids) do if #id ~= 16 then call('ZREM', DIED, id) end end
  end)
end
