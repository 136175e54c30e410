-- Returns a page of the tasks with a status.
--
-- Delayed tasks and dead letters are read in the order of a sorted set. The others are read with `HSCAN`, which returns each row that
-- exists throughout the scan, and only a few rows in each step. If a page ends within a step, the position contains the last id of the
-- page, and the next page repeats the step from that id on.
--
-- Needs: entry, intact_entry, dead_letter_row, store_time, queues.
-- KEYS: NONE, META, ALIVE, DELAYED, DUE, RUNNING, RESULTS, DEAD, DIED, ERRORS, TYPES, QUEUES, PERMITS.
--
-- ARGV[1] -> status: w, l, r, d, x or c, as in `status.lua`
-- ARGV[2] -> cursor of the scan, or score
-- ARGV[3] -> last id of the page before, or empty
-- ARGV[4] -> maximum number of tasks
-- ARGV[5] -> maximum number of rows that are examined
-- ARGV[6] -> 1 if tasks are selected by their name, else 0
-- ARGV[7] -> the name
-- ARGV[8] -> the queue, or empty to select tasks of all queues
--
-- Output:
-- [1]  -> position at which the next page begins: cursor or score; empty if there is none
-- [2]  -> its id
-- [3]  -> number of rows that were examined
-- [4]  -> time in milliseconds: of the clock, or of the store for ended tasks
-- [5..] -> for each task: id; name, or nil; queue; group; header of the entry or nil; number of failures without a header; for delayed
--   tasks, the time at which they are due; for running ones, the epoch; for others, the time until which they are kept; for dead
--   letters, the reason and the error
local status, cursor, last_id, limit, budget = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local by_name, wanted_name, wanted_queue = ARGV[6] == '1', ARGV[7], ARGV[8]
local MAX_ERROR, MAX_SCANNED_BYTES = 160, 1048576
local tasks, examined, bytes, types = {}, 0, 0, {}

-- Adds a task if it matches.
local function add(id, name, queue, ...)
  if by_name and name ~= wanted_name or wanted_queue ~= '' and queue ~= wanted_queue then return end
  tasks[#tasks + 1] = { id, name, queue, ... }
end

local function is_full() return #tasks >= limit or examined >= budget or bytes >= MAX_SCANNED_BYTES end

-- ===== Rows =====

-- Returns the name of a task and those of its queue and its group, given its entry.
local function names_of(entry)
  local inline = byte(entry, ENTRY_FLAGS) % 2 == 1 and number_at('>I4', entry, ENTRY_LENGTH) or 0
  local name = sub(entry, ENTRY_PAYLOAD + extension_length(entry) + inline)
  if byte(entry, ENTRY_FLAGS) % 4 < 2 then return name, '', '' end
  return name, queues().queue_of(entry, 0), queues().group_of(entry, 0)
end

-- Adds a task with an entry. One whose entry cannot be read has only an id.
local function add_entry(id, entry, ...)
  if not entry or not is_intact(id, entry) then return add(id, false, '', '', false, 0, ...) end
  local name, queue, group = names_of(entry)
  add(id, name, queue, group, sub(entry, 1, ENTRY_PAYLOAD - 1), 0, ...)
end

-- Returns the name and the queue of a kind. If no client has recorded the kind, the name is false.
local function type_of(kind)
  if not types[kind] then
    local row = call('HGET', TYPES, kind) or ''
    local length = byte(row, TYPE_QUEUE_LENGTH)
    local is_known = length and #row >= TYPE_QUEUE_LENGTH + length
    types[kind] = is_known and { sub(row, TYPE_QUEUE + length), sub(row, TYPE_QUEUE, TYPE_QUEUE + length - 1) } or { false, '' }
  end
  return types[kind][1], types[kind][2]
end

-- Returns the number of the last attempt in a row of `errors`.
local function failures_of(id)
  local row, at, failures = call('HGET', ERRORS, id) or '', 1, 0
  while at + 11 <= #row do
    failures = number_at('>I4', row, at)
    at = at + 12 + number_at('>I2', row, at + 10)
  end
  return failures
end

local function add_waiting(id, row)
  if #row < ALIVE_KIND_END or call('HEXISTS', RUNNING, id) == 1 or call('ZSCORE', DUE, id) then return end
  local name, queue = type_of(sub(row, ALIVE_KIND, ALIVE_KIND_END))
  if by_name and name ~= wanted_name or wanted_queue ~= '' and queue ~= wanted_queue then return end
  add(id, name, queue, sub(row, ALIVE_KEY_END + 1), false, failures_of(id), 0)
end

local function add_running(id, row) add_entry(id, sub(row, RUNNING_ENTRY), sub(row, 1, RUNNING_EPOCH_END)) end

-- Adds a task that has succeeded or was cancelled. An output begins with the name of its task: see `envelope.rs`.
local function add_ended(id, row)
  if #row < RESULT_STATE or sub(row, RESULT_STATE, RESULT_STATE) ~= status then return end
  local until_time = number_at('>I6', row)
  if until_time <= store_time() then return end
  local name, at = false, RESULT_STATE + 1
  if status == 'd' and byte(row, at) == 1 and #row >= at + 2 then
    name = sub(row, at + 3, at + 2 + number_at('>I2', row, at + 1))
  end
  add(id, name, '', '', false, 0, until_time)
end

local function add_delayed(id, due) add_entry(id, call('HGET', DELAYED, id), due) end

local function add_dead(id, since)
  local row = call('HGET', DEAD, id)
  local kept_until = since + DEAD_RETENTION
  if not is_dead_letter_row(row) then return add(id, false, '', '', false, 0, kept_until, DAMAGED, '') end
  local length = number_at('>I4', row, DEAD_ERROR_LENGTH)
  local error = sub(row, DEAD_ERROR, DEAD_ERROR + math.min(length, MAX_ERROR) - 1)
  add_entry(id, sub(row, DEAD_ERROR + length), kept_until, byte(row), error)
end

-- ===== Scans =====

-- Returns an id as numbers, since Lua compares strings by the server's locale.
local function numbers_of(id)
  if #id ~= 16 then return { -1, 0, 0 } end
  return { number_at('>I6', id), number_at('>I6', id, 7), number_at('>I4', id, 13) }
end

local function is_less(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end

-- Returns the rows of a step of a scan, in the order of their ids, that are behind the last id. Ids of another length are left out.
local function rows_of(page)
  local rows, last = {}, numbers_of(last_id)
  for i = 1, #page, 2 do
    local order = numbers_of(page[i])
    if is_less(last, order) then rows[#rows + 1] = { page[i], page[i + 1], order } end
  end
  table.sort(rows, function(a, b) return is_less(a[3], b[3]) end)
  return rows
end

local function scan(key, add_row)
  local steps = 0
  repeat
    local page = call('HSCAN', key, cursor, 'COUNT', 1)
    for _, row in ipairs(rows_of(page[2])) do
      if is_full() then return cursor, last_id end
      examined, bytes, last_id = examined + 1, bytes + #row[2], row[1]
      add_row(row[1], row[2])
    end
    cursor, last_id, steps = page[1], '', steps + 1
  until cursor == '0' or is_full() or steps >= budget
  return cursor ~= '0' and cursor or '', ''
end

-- ===== Sorted sets =====

-- Returns the number of members of a sorted set that precede a score and an id, and with `or_equal`, also that member.
local function rank_of(key, score, id, or_equal)
  local first, last = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  local wanted = numbers_of(id)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local member = call('ZRANGE', key, middle, middle)[1]
    local is_before = is_less(numbers_of(member), wanted) or or_equal and member == id
    if is_before then first = middle + 1 else last = middle end
  end
  return first
end

-- Examines members of a sorted set. `read` returns some of them with their scores, given how many have been examined.
local function walk(read, add_member)
  while true do
    local page = read(examined)
    for i = 1, #page, 2 do
      if is_full() then return cursor, last_id end
      examined, last_id, cursor = examined + 1, page[i], page[i + 1]
      add_member(last_id, tonumber(cursor))
    end
    if #page == 0 then return '', '' end
  end
end

local function walk_delayed()
  local first = last_id ~= '' and rank_of(DUE, cursor, last_id, true) or 0
  return walk(function(n) return call('ZRANGE', DUE, first + n, first + n + limit, 'WITHSCORES') end, add_delayed)
end

-- The newest dead letters come first. Expired ones are the oldest.
local function walk_dead()
  local oldest = string.format('(%.0f', store_time() - DEAD_RETENTION)
  local unexpired = call('ZCOUNT', DIED, oldest, '+inf')
  local newer = last_id ~= '' and call('ZCARD', DIED) - rank_of(DIED, cursor, last_id, false) or 0
  return walk(function(n)
    local first = newer + n
    if first >= unexpired then return {} end
    return call('ZREVRANGE', DIED, first, math.min(first + limit, unexpired - 1), 'WITHSCORES')
  end, add_dead)
end

local next_cursor, next_id
if status == 'w' then next_cursor, next_id = scan(ALIVE, add_waiting)
elseif status == 'r' then next_cursor, next_id = scan(RUNNING, add_running)
elseif status == 'l' then next_cursor, next_id = walk_delayed()
elseif status == 'x' then next_cursor, next_id = walk_dead()
else next_cursor, next_id = scan(RESULTS, add_ended) end
return { next_cursor, next_id, examined, status == 'l' and now or store_time(), unpack(tasks) }
