-- Damage that maintenance mends before it reads anything else, since every script would fail because of it: keys that
-- hold a value of another type, fields of `meta`, and rows of sessions. The client writes the routes again: see
-- `routing.rs`.
--
-- Needs: session, lists, outcomes.
local mended, last_mended, evidence = state.mended or 0, state.last_mended, {}
local function is_mended(what, row)
  mended, last_mended = mended + 1, what
  state.mended, state.last_mended = mended, what
  if row then evidence[#evidence + 1] = string.format('%.0f %s: ', now, what) .. sub(row, 1, 1024) end
end

-- Removes a key that holds a value of another type. `SUNIONSTORE` replaces a value of any type, and an empty result removes
-- the key.
local function remove_other(command, key)
  local answer = redis.pcall(command, key)
  if type(answer) ~= 'table' or not string.find(answer.err, 'WRONGTYPE', 1, true) then return end
  call('SUNIONSTORE', key, NONE)
  is_mended('a key of another type is removed: ' .. key)
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

local function mend_keys()
  local keys = {
    HLEN = {
      SESSIONS, ALIVE, PAYLOADS, DELAYED, RUNNING, CLAIMS, RESULTS, EXPIRY_BINS, DEAD, ERRORS, CANCEL, TOMBSTONES,
      WATCHERS, ROUTES,
    },
    LLEN = { READY, DAMAGE }, ZCARD = { DUE, LEASE, EXPIRY, DIED, AWAITING }, SCARD = { QUARANTINED, SUSPECTS },
  }
  for command, some in pairs(keys) do
    for _, key in ipairs(some) do remove_other(command, key) end
  end
  each_list(function(list) remove_other('LLEN', key_of(list)) end)
  each_set(function(set) remove_other('ZCARD', IDLE .. ':' .. set) end)
end

-- Returns a stored cursor, or the cursor that begins a scan if the stored one cannot be read.
local function cursor_of(text) return text and #text < 19 and string.match(text, '^%d+$') or '0' end

local function is_integer(text) return string.find(text, '^-?%d+$') and #text < 16 end

-- Returns the number of entries that cancelled tasks have left. If there are many rows, it is estimated as one for each
-- row.
local function number_of_tombstones()
  local n = call('HLEN', TOMBSTONES)
  if n > 4 * MAX_BATCH then return n end
  n = 0
  for _, found in ipairs(call('HVALS', TOMBSTONES)) do n = n + (tonumber(found) or 1) end
  return n
end

-- Writes again the fields that each client knows, and removes numbers that cannot be read. Those begin anew.
local function mend_meta(partitions)
  local known = { layout = LAYOUT, partitions = partitions }
  for field, value in pairs(known) do
    local text = call('HGET', META, field)
    if not text or string.find(text, '%D') or text == '' then
      call('HSET', META, field, value)
      is_mended('a field of meta is written again: ' .. field, text)
    end
  end
  if not meta[5] or not is_integer(meta[5]) then call('HSET', META, 'tombstones', number_of_tombstones()) end
  local numbers = {
    'done', 'retried', 'snoozed', 'died', 'released', 'crashed', 'lost', 'cancelled', 'ended_apart',
  }
  for i, text in ipairs(call('HMGET', META, unpack(numbers))) do
    if text and not is_integer(text) then
      call('HDEL', META, numbers[i])
      is_mended('a number of meta cannot be read: ' .. numbers[i], text)
    end
  end
end

-- Returns whether these rows of `routes` have the right form, and none is missing.
local function has_form(rows)
  local paths, sets, spare, named, readers = 0, 0, 0, {}, {}
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
    each_id(sub(row, 3), function(list) readers[list] = (readers[list] or 0) + 8 end)
    return #row > 1 and is_hex(sub(row, 3)) and number_at('>I2', row) <= #row / 16 and is_set(sub(field, 2))
  end
  function forms.l(_, row)
    spare = spare + 1
    for at = 1, #row, 8 do
      if not is_set(sub(row, at, at + 7)) then return false end
    end
    return true
  end
  for field, row in pairs(rows) do
    local form = forms[sub(field, 1, 1)]
    if (#field == 9 or #field == 17) and form and not form(field, row) then return false end
  end
  for list in pairs(named) do
    if #(rows['l' .. list] or 'absent') ~= (readers[list] or 0) then return false end
    spare = spare - 1
  end
  local is_read, text = pcall(cjson.decode, rows.text or '')
  if not is_read or type(text) ~= 'table' or #(rows.sets or '') ~= 8 * sets or spare ~= 0 then return false end
  for _ in pairs(text.sets or {}) do sets = sets - 1 end
  for _ in pairs(text.paths or {}) do paths = paths - 1 end
  return sets == 0 and paths == 0
end

-- Returns whether `routes`, and the fields of `meta` that are copied from it, are as a client has written them.
local function are_routes_sound()
  if call('HLEN', ROUTES) > 16 * MAX_BATCH then return version == call('HGET', ROUTES, 'version') end
  local all, rows = call('HGETALL', ROUTES), {}
  for i = 1, #all, 2 do rows[all[i]] = all[i + 1] end
  local written = rows.version or NO_ROUTES
  local plain = ''
  if #(rows.sets or '') == 8 then
    local plan = rows['s' .. rows.sets] or ''
    if plan == '\0\0' or plan == '\0\0' .. MAIN then plain = rows.sets end
  end
  return meta[2] == written .. plain and (written == NO_ROUTES and next(rows) == nil or has_form(rows))
end

-- Removes the row of a session that cannot be read. Its client opens another.
local function mend_session(id)
  local row = call('HGET', SESSIONS, id)
  if not row then return end
  call('HDEL', SESSIONS, id)
  is_mended('the row of a session cannot be read', row)
end
