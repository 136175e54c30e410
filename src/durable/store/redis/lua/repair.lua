-- Repairs damage because of which every script would fail: keys that hold a value of another type, fields of `meta`, and
-- rows of sessions. Maintenance does this before it reads anything else. The client writes damaged routes again: see
-- `routing.rs`.
--
-- Needs: lists, entry, groups.
-- Reads: epoch, tombstones, steps.
-- Defines: repaired, last_repair, evidence, record_repair, remove_other_type, each_list, each_set, each_queue, repair_keys, cursor_of,
--   is_integer, number_of_tombstones, repair_meta, repair_queues, are_routes_intact, repair_session.
local repaired, last_repair, evidence = state.repaired or 0, state.last_repair, {}
local function record_repair(what, row)
  repaired, last_repair = repaired + 1, what
  state.repaired, state.last_repair = repaired, what
  if row then evidence[#evidence + 1] = string.format('%.0f %s: ', now, what) .. sub(row, 1, 1024) end
end

-- Removes a key if it holds a value of another type than `command` reads. `SUNIONSTORE` replaces a value of any type, and
-- an empty result removes the key.
local function remove_other_type(command, key, what)
  local answer = redis.pcall(command, key)
  if type(answer) ~= 'table' or not answer.err or not string.find(answer.err, 'WRONGTYPE', 1, true) then return false end
  call('SUNIONSTORE', key, NONE)
  record_repair(what or 'a key of another type is removed: ' .. key)
  return true
end

-- Gives permits to all running tasks of named queues.
local function restore_permits()
  local cursor = '0'
  repeat
    local page = call('HSCAN', RUNNING, cursor, 'COUNT', MAX_BATCH)
    for i = 1, #page[2], 2 do
      local row = page[2][i + 1]
      local queue = queues().queue_of(row, RUNNING_ENTRY - 1)
      local key = PERMITS .. ':' .. queue
      if queue ~= '' then pcall(call, 'SADD', key, page[2][i]) end
      local group = queues().group_of(row, RUNNING_ENTRY - 1)
      if queue ~= '' and group ~= '' then pcall(call, 'SADD', groups().permits_key(queue, group), page[2][i]) end
    end
    cursor = page[1]
  until cursor == '0'
end

local function each_list(choose)
  for _, field in ipairs(call('HKEYS', ROUTES)) do
    if sub(field, 1, 1) == 'l' and #field == 17 then choose(sub(field, 2)) end
  end
end

local function each_set(choose)
  local sets = plain_set or call('HGET', ROUTES, 'sets') or ''
  for at = 1, #sets - 7, 8 do choose(sub(sets, at, at + 7)) end
end

-- Calls a function with each queue that a set serves, or that has settings.
local function each_queue(choose)
  local queues = {}
  for _, field in ipairs(call('HKEYS', ROUTES)) do
    if sub(field, 1, 1) == 'q' then queues[sub(field, 2)] = true end
  end
  for _, field in ipairs(call('HKEYS', QUEUES)) do
    if sub(field, 1, 1) == 's' then queues[sub(field, 2)] = true end
  end
  for queue in pairs(queues) do choose(queue) end
end

-- Pauses the queues that workers serve, since the limits of all queues are lost.
local function pause_queues()
  each_queue(function(queue) call('HSET', QUEUES, 's' .. queue, pack('>I1I4I6I4I4I4I4', 3, 0, 0, 0, 0, 0, 1)) end)
end

local function repair_keys()
  local keys = {
    HLEN = {
      SESSIONS, ALIVE, PAYLOADS, DELAYED, RUNNING, CLAIMS, RESULTS, EXPIRY_BINS, DEAD, ERRORS, CANCEL, TOMBSTONES,
      WATCHERS, ROUTES, QUEUES, HELD_KEYS, GROUPS, SCHEDULES, PROGRESS, TYPES, STATS, STEPS, NOTES,
    },
    LLEN = { READY, DAMAGE }, ZCARD = { DUE, LEASE, EXPIRY, DIED, AWAITING, CARDS }, SCARD = { QUARANTINED, UNLISTED },
  }
  for command, some in pairs(keys) do
    for _, key in ipairs(some) do
      if remove_other_type(command, key) and key == QUEUES then pause_queues() end
    end
  end
  for needs = 1, 2 do remove_other_type('ZCARD', SCHEDULE_TIMES .. ':' .. needs) end
  each_list(function(list)
    remove_other_type('LLEN', key_of(list))
    local key = groups().ring_key(list)
    remove_other_type('ZCARD', key)
  end)
  each_set(function(set) remove_other_type('ZCARD', IDLE .. ':' .. set) end)
  each_queue(function(queue)
    if remove_other_type('SCARD', PERMITS .. ':' .. queue) then restore_permits() end
    remove_other_type('ZCARD', GROUPS .. ':hold:' .. queue)
  end)
end

-- Returns a stored cursor, or the cursor that begins a scan if the stored one cannot be read.
local function cursor_of(text) return text and #text < 19 and string.match(text, '^%d+$') or '0' end

local function is_integer(text) return string.find(text, '^-?%d+$') and #text < 16 end

-- Returns the number of tombstones. If there are many rows, it is estimated as one for each row.
local function number_of_tombstones()
  local n = call('HLEN', TOMBSTONES)
  if n > 4 * MAX_BATCH then return n end
  n = 0
  for _, found in ipairs(call('HVALS', TOMBSTONES)) do n = n + (tonumber(found) or 1) end
  return n
end

-- Writes damaged fields again whose values each client knows, and removes unreadable numbers, which start again at zero.
local function repair_meta(partitions)
  local known = { layout = call('HGET', META, 'layout_copy') or '', partitions = partitions }
  if not is_integer(known.layout) then known.layout = LAYOUT end
  for field, value in pairs(known) do
    local text = call('HGET', META, field)
    if not text or string.find(text, '%D') or text == '' then
      call('HSET', META, field, value)
      if field == 'layout' then call('HSET', META, 'layout_copy', value) end
      record_repair('a field of meta is written again: ' .. field, text)
    end
  end
  if not meta[5] or not is_integer(meta[5]) then call('HSET', META, 'tombstones', number_of_tombstones()) end
  -- Scripts look for steps only if `meta` says that there are some. Until then, a run would repeat those of its task.
  local found = call('EXISTS', NOTES) == 1 and '2' or not meta[8] and call('EXISTS', STEPS) == 1 and '1' or meta[8]
  if found ~= meta[8] then
    call('HSET', META, 'steps', found)
    meta[8] = found
  end
  local numbers = {
    'done', 'retried', 'snoozed', 'died', 'released', 'crashed', 'lost', 'cancelled', 'ended_apart',
  }
  for i, text in ipairs(call('HMGET', META, unpack(numbers))) do
    if text and not is_integer(text) then
      call('HDEL', META, numbers[i])
      record_repair('a number of meta cannot be read: ' .. numbers[i], text)
    end
  end
end

-- Pauses queues whose limits cannot be read, until they are resumed. Removes other rows that cannot be read, or that are no longer
-- needed: the time of a rate if it is in the past, and the turns of priorities if there are no tasks.
local function repair_queues()
  local all, is_empty = call('HGETALL', QUEUES), call('EXISTS', ALIVE) == 0
  for i = 1, #all, 2 do
    local field, row = all[i], all[i + 1]
    local form = sub(field, 1, 1)
    if form == 's' and #row ~= SETTINGS_END then
      call('HSET', QUEUES, field, pack('>I1I4I6I4I4I4I4', 3, 0, 0, 0, 0, 0, 1))
      record_repair('the limits of a queue cannot be read, so it is paused: ' .. sub(field, 2), row)
    elseif form ~= 's' and not (form == 'p' and #row == 12) and not (form == 'r' and string.find(row, '^%d+$') and #row < 17) then
      call('HDEL', QUEUES, field)
      record_repair('a row of a queue cannot be read', row)
    elseif form == 'p' and is_empty or form == 'r' and tonumber(row) <= micros then
      call('HDEL', QUEUES, field)
    end
  end
end

-- Returns `true` if all of these rows of `routes` are well-formed, and none is missing.
local function has_form(rows)
  local paths, sets, spare, named, readers, of_queues = 0, 0, 0, {}, {}, {}
  local function is_hex(text) return #text % 16 == 0 and not string.find(text, '[^%x]') end
  local function is_set(set) return string.find(rows.sets or '', set, 1, true) end
  local function each_id(text, choose)
    for at = 1, #text, 16 do choose(sub(text, at, at + 15)) end
  end

  local forms = {}
  function forms.k(_, row)
    paths = paths + 1
    each_id(row, function(list) named[list] = true end)
    return row ~= '' and is_hex(row)
  end
  function forms.s(field, row)
    sets = sets + 1
    if #row < PLAN_QUEUE - 1 then return false end
    local drains, high, normal, low, length = number_at('>I2I2I2I2B', row)
    local queue, lists = sub(row, PLAN_QUEUE, PLAN_QUEUE + length - 1), sub(row, PLAN_QUEUE + length)
    each_id(length > 0 and lists or '', function(list) of_queues[#of_queues + 1] = { 'q' .. queue, list } end)
    each_id(lists, function(list) readers[list] = (readers[list] or 0) + 8 end)
    return is_hex(lists) and #lists == 16 * (drains + high + normal + low) and is_set(sub(field, 2))
  end
  function forms.p(field, row) return #row > 2 and is_hex(sub(row, 3)) and is_set(sub(field, 2)) end
  function forms.l(_, row)
    spare = spare + 1
    for at = 2 + (byte(row) or 0), #row, 8 do
      if not is_set(sub(row, at, at + 7)) then return false end
    end
    return row ~= ''
  end
  for field, row in pairs(rows) do
    local first = sub(field, 1, 1)
    local form = forms[first]
    if (#field == 9 or #field == 17) and form and not form(field, row) then return false end
    if first == 'q' and not is_hex(row) then return false end
  end
  for list in pairs(named) do
    local row = rows['l' .. list] or ''
    if row == '' or #row - 1 - byte(row) ~= (readers[list] or 0) then return false end
    spare = spare - 1
  end
  for _, it in ipairs(of_queues) do
    if not string.find(rows[it[1]] or '', it[2], 1, true) then return false end
  end
  local is_read, text = pcall(cjson.decode, rows.text or '')
  if not is_read or type(text) ~= 'table' or #(rows.sets or '') ~= 8 * sets or spare ~= 0 then return false end
  for _ in pairs(text.sets or {}) do sets = sets - 1 end
  for _ in pairs(text.paths or {}) do paths = paths - 1 end
  return sets == 0 and paths == 0
end

-- Returns `true` if `routes`, and its copies in `meta`, are as a client has written them.
local function are_routes_intact()
  if call('HLEN', ROUTES) > 16 * MAX_BATCH then return version == call('HGET', ROUTES, 'version') end
  local all, rows = call('HGETALL', ROUTES), {}
  for i = 1, #all, 2 do rows[all[i]] = all[i + 1] end
  local written = rows.version or NO_ROUTES
  local plain = ''
  if #(rows.sets or '') == 8 then
    local plan = rows['s' .. rows.sets] or ''
    if plan == pack('>I2I2I2I2B', 0, 0, 1, 0, 0) .. MAIN then plain = rows.sets end
  end
  return meta[2] == written .. plain and (written == NO_ROUTES and next(rows) == nil or has_form(rows))
end

-- Removes an unreadable row of a session. Its client opens another session.
local function repair_session(id)
  local row = call('HGET', SESSIONS, id)
  if not row then return end
  call('HDEL', SESSIONS, id)
  record_repair('the row of a session cannot be read', row)
end
