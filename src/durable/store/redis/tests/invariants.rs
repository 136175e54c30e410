//! The invariants of a store's rows.

/// Finds broken invariants among the keys of a store.
pub(in crate::durable::store) const INVARIANTS: &str = r"
local base, wrong = ARGV[1], {}
local function call(command, key, ...) return redis.call(command, base .. key, ...) end
local function hash(key)
  local rows, all = call('HGETALL', key), {}
  for i = 1, #rows, 2 do all[rows[i]] = rows[i + 1] end
  return all
end
local function scores(key)
  local rows, all = call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}
  for i = 1, #rows, 2 do all[rows[i]] = rows[i + 1] end
  return all
end
local function expect(what, is, id) if not is then wrong[#wrong + 1] = what .. ' ' .. id end end
local alive, running, delayed, due = hash('alive'), hash('running'), hash('delayed'), scores('due')
local tombstones, results, dead, died = hash('tombstones'), hash('results'), hash('dead'), scores('died')
local claims, lease, payloads, cancel = hash('claims'), scores('lease'), hash('payloads'), hash('cancel')
local left, waiting, tombstone_count = {}, {}, 0
for id, n in pairs(tombstones) do left[id], tombstone_count = tonumber(n), tombstone_count + tonumber(n) end
expect('tombstones are counted', tombstone_count == tonumber(call('HGET', 'meta', 'tombstones') or '0'), tombstone_count)
local function group_of(entry)
  if string.byte(entry, 55) % 4 < 2 or string.byte(entry, 62) % 8 < 4 then return nil end
  local at = 65 + string.byte(entry, 64)
  return string.sub(entry, 65, at - 1), string.sub(entry, at + 1, at + string.byte(entry, at))
end
local quarantined = {}
local function check(entry)
  local id = string.sub(entry, 1, 16)
  local _, group = group_of(entry)
  local tombstone = id .. string.sub(entry, 47, 54) .. (group or '')
  if (left[tombstone] or 0) > 0 then left[tombstone] = left[tombstone] - 1 else
    expect('waits once', not waiting[id], id)
    expect('waits and is alive', alive[id], id)
    local crashes, losses = struct.unpack('>I2I2', entry, 37)
    local deaths = crashes + math.min(losses, 1)
    if deaths > 0 and deaths + 1 >= struct.unpack('>I2', entry, 31) then quarantined[id] = true end
    waiting[id] = entry
  end
end
local groups, waits_in, sublists = hash('groups'), {}, {}
for _, key in ipairs(redis.call('KEYS', base .. 'ready*')) do
  local list, sublist = string.match(string.sub(key, #base + 7), '^(%x+):(.+)$')
  for _, entry in ipairs(redis.call('LRANGE', key, 0, -1)) do
    check(entry)
    local queue, group = group_of(entry)
    expect('waits in the sublist of its group', group == sublist, key)
    if group then
      waits_in[list] = (waits_in[list] or 0) + 1
      sublists[list .. group] = queue
    end
  end
end
for list, n in pairs(waits_in) do expect('entries in sublists are counted', tonumber(groups['n' .. list]) == n, list) end
for field, n in pairs(groups) do
  local list = string.match(field, '^n(.+)$')
  if list then expect('has entries in sublists', waits_in[list] == tonumber(n), list) end
end
local ringed = {}
for _, key in ipairs(redis.call('KEYS', base .. 'groups:ring:*')) do
  local list = string.sub(key, #base + 13)
  for group, turn in pairs(scores('groups:ring:' .. list)) do
    local queue = sublists[list .. group]
    expect('is in a ring and waits', queue, list .. group)
    local holder = (queue or '') .. '\0' .. group
    local settings = call('HGET', 'queues', 's' .. (queue or '')) or ''
    expect('the queue is known to have groups', string.byte(settings) and string.byte(settings) >= 2, list)
    local limit = #settings == 27 and struct.unpack('>I4', settings, 20) or 0
    local is_full = limit > 0 and call('SCARD', 'permits:' .. holder) >= limit
    local may_start = not is_full and not call('ZSCORE', 'groups:hold:' .. (queue or ''), group)
    expect('has a turn if it may start: ' .. turn, (turn ~= 'inf') == may_start, list .. group)
    local blocked = groups['b' .. holder] or ''
    local is_blocked = false
    for at = 1, #blocked, 16 do is_blocked = is_blocked or string.sub(blocked, at, at + 15) == list end
    if turn == 'inf' then expect('is known to have no turn', is_blocked, list .. group) end
    ringed[list .. group] = true
  end
end
for sublist in pairs(sublists) do expect('waits and is in a ring', ringed[sublist], sublist) end
for id, n in pairs(left) do expect('has no tombstone too many', n == 0, id) end
for id in pairs(quarantined) do expect('is in quarantine', call('SISMEMBER', 'quarantined', id) == 1, id) end
for _, id in ipairs(call('SMEMBERS', 'quarantined')) do expect('is quarantined', quarantined[id], id) end
for id in pairs(alive) do
  local places = (waiting[id] and 1 or 0) + (due[id] and 1 or 0) + (running[id] and 1 or 0)
  expect('is in one place, not ' .. places, places == 1, id)
  local entry = waiting[id] or delayed[id] or string.sub(running[id] or '', 17)
  if #entry > 55 and string.byte(entry, 55) % 2 == 0 then expect('has a payload', payloads[id], id) end
end
local function key_of(entry)
  if string.byte(entry, 55) % 4 < 2 or string.byte(entry, 62) % 4 < 2 then return '' end
  local last = 61 + struct.unpack('>I2', entry, 60)
  return string.sub(entry, last - 16, last - 1)
end
local function parent_of(entry)
  local flags = string.byte(entry, 55) % 4 >= 2 and string.byte(entry, 62) or 0
  local last = flags >= 8 and 61 + struct.unpack('>I2', entry, 60) - (flags % 4 >= 2 and 17 or 0)
  return last and string.sub(entry, last - 15, last)
end
local function tail_of(entry)
  local key, _, group = key_of(entry), group_of(entry)
  local parent = parent_of(entry)
  key = key == '' and (group or parent) and string.rep('\0', 16) or key
  return key .. (group or '') .. (parent and '\255' .. parent or '')
end
local held = hash('held_keys')
for id, row in pairs(alive) do
  local entry = waiting[id] or delayed[id]
  local whole = entry or string.sub(running[id] or '', 17)
  if #whole >= 59 then expect('is alive with the key, the group and the parent of its entry', string.sub(row, 23) == tail_of(whole), id) end
  if #row >= 38 and #whole > 61 and string.byte(whole, 62) % 4 >= 2 then
    local key = held[string.sub(row, 23, 38)] or ''
    local has_key, mode = string.sub(key, 1, 16) == id, string.byte(whole, 61 + struct.unpack('>I2', whole, 60))
    expect('has its key', has_key or mode % 2 == 1, id)
    if has_key and mode % 2 == 1 then expect('waits with the entry of its key', string.sub(key, 29) == entry, id) end
  end
end
for id in pairs(due) do expect('is due and alive', alive[id] and delayed[id], id) end
for id in pairs(delayed) do expect('is delayed and due', due[id], id) end
for id, row in pairs(running) do
  local epoch = string.sub(row, 1, 16)
  expect('runs and is alive', alive[id], id)
  expect('runs and is claimed', claims[epoch] and claims[epoch .. 'o'] and lease[epoch], id)
end
local queue_of, group_permits = {}, {}
for id, row in pairs(running) do
  local queue, group = group_of(string.sub(row, 17))
  if group then
    local holder = queue .. '\0' .. group
    group_permits[holder .. id] = true
    expect('has a permit of its group', call('SISMEMBER', 'permits:' .. holder, id) == 1, id)
  end
  if string.byte(row, 71) % 4 >= 2 and string.byte(row, 78) % 2 == 1 then
    queue_of[id] = string.sub(row, 81, 80 + string.byte(row, 80))
    expect('has a permit', call('SISMEMBER', 'permits:' .. queue_of[id], id) == 1, id)
  end
end
for _, key in ipairs(redis.call('KEYS', base .. 'permits:*')) do
  local queue = string.sub(key, #base + 9)
  for _, id in ipairs(redis.call('SMEMBERS', key)) do
    expect('has a permit and runs', queue_of[id] == queue or group_permits[queue .. id], id)
  end
end
for id in pairs(hash('errors')) do expect('has failed and is there', alive[id] or dead[id], id) end
for id, entry in pairs(waiting) do
  local flags = string.byte(entry, 55)
  if flags % 8 >= 4 then expect('has errors', call('HEXISTS', 'errors', id) == 1, id) end
end
for id in pairs(hash('progress')) do expect('has progress and is alive', alive[id], id) end
for id, n in pairs(hash('steps')) do
  expect('has steps and is alive or dead', alive[id] or dead[id], id)
  local waits = call('HGET', 'steps:' .. id, '')
  local rows = call('HLEN', 'steps:' .. id) - (waits and 1 or 0)
  expect('has as many steps as are counted', n == struct.pack('>I4', rows), id)
  local target = waits and struct.unpack('>I4', waits) or 0
  if target > 0 then expect('waits for steps that it does not have', rows < target, id) end
end
for _, key in ipairs(redis.call('KEYS', base .. 'steps:*')) do
  expect('is among the tasks with steps', call('HEXISTS', 'steps', string.sub(key, #base + 7)) == 1, key)
end
-- The only partition stores the steps of parents at once.
for child, note in pairs(hash('notes')) do
  expect('is a note that was left without steps', #note > 16 and call('HGET', 'meta', 'partitions') ~= '1', child)
end
for id in pairs(cancel) do expect('is to be cancelled and runs', running[id], id) end
for id in pairs(died) do expect('is a dead letter', dead[id] and not alive[id], id) end
for id in pairs(dead) do expect('has died', died[id], id) end
local binned, expiry = {}, scores('expiry')
for bin, ids in pairs(hash('expiry_bins')) do
  expect('bin expires', expiry[bin] == string.match(bin, '^%d+'), bin)
  for at = 1, #ids, 16 do binned[string.sub(ids, at, at + 15)] = true end
end
for id in pairs(results) do
  expect('is in a bin', binned[id], id)
  expect('has ended', not alive[id], id)
end
local first = { math.huge, math.huge }
for needs = 1, 2 do
  for name, time in pairs(scores('schedule_times:' .. needs)) do
    local row = call('HGET', 'schedules', name)
    expect('is handed out and there', row and true or false, name)
    expect('is handed out to builds that compute it', row and struct.unpack('>I1', row, 9) == needs, name)
    first[needs] = math.min(first[needs], tonumber(time))
  end
end
for name, row in pairs(hash('schedules')) do
  local needs, time = struct.unpack('>I1I6', row, 9)
  local handed_out = call('ZSCORE', 'schedule_times:' .. needs, name)
  expect('is handed out', (time > 0) == (handed_out and true or false), name)
  expect('has the field of schedules', call('HEXISTS', 'meta', 'schedules') == 1, name)
end
local field = call('HGET', 'meta', 'schedules') or ''
if #field == 12 then
  for needs, time in ipairs({ struct.unpack('>I6I6', field) }) do
    if needs < 3 then expect('is not handed out late', first[needs] == math.huge or time > 0 and time <= math.max(first[needs], 1), needs) end
  end
end
return wrong";
