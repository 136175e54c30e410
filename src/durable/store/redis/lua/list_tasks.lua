-- Returns a page of the tasks with a status.
--
-- Delayed tasks and dead letters are read in the order of a sorted set. The others are read with `HSCAN`, which returns each row that
-- exists throughout the scan. A page ends before a step of the scan that may not fit into it. If the first step of a page does not fit,
-- it is made as short as possible. If it still does not fit, the page has the rows with the lowest ids, and the next page repeats the step
-- from the last of these ids on. The repeated step may go further, since it ends behind the first row that it finds, and rows may have
-- been removed. It then has rows that no page has had, so the next page has all of it.
--
-- Ids of another length than 16 are left out. In a sorted set, a position has their first 16 bytes, filled up with zeros.
--
-- Needs: task_rows.
-- KEYS: NONE, META, ALIVE, DELAYED, DUE, RUNNING, CLAIMS, RESULTS, DEAD, DIED, ERRORS, TYPES, QUEUES, PERMITS.
--
-- ARGV[1] -> status: w, l, r, d, x or c, as in `status.lua`
-- ARGV[2] -> cursor of the scan, or score
-- ARGV[3] -> last id of the page before, or empty
-- ARGV[4] -> maximum number of tasks
-- ARGV[5] -> maximum number of rows that are examined
-- ARGV[6] -> 1 if tasks are selected by their name, else 0
-- ARGV[7] -> the name
-- ARGV[8] -> the name of the queue; empty for the default queue
-- ARGV[9] -> cursor with which the step ended in which the page before has ended, or empty
-- ARGV[10] -> 1 to select only delayed tasks that have failed, else 0
-- ARGV[11] -> the session that runs the tasks, or empty to select running tasks of all sessions
-- ARGV[12] -> 1 if tasks are selected by their queue, else 0
--
-- Output:
-- [1]  -> position at which the next page begins: cursor or score; empty if there is none
-- [2]  -> id at which the next page begins, or empty
-- [3]  -> cursor with which the step of that id ends, or empty
-- [4]  -> number of rows that were examined
-- [5]  -> time in milliseconds: of the clock, or of the store for ended tasks
-- [6]  -> time of the clock in milliseconds
-- [7..] -> descriptions of the tasks: see `task_rows.lua`
local status, cursor, last_id, limit, budget = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local by_name, wanted_name, wanted_queue, last_end = ARGV[6] == '1', ARGV[7], ARGV[8], ARGV[9]
local only_failed, wanted_session, by_queue = ARGV[10] == '1', ARGV[11], ARGV[12] == '1'
local MAX_SCANNED_BYTES, LARGE_ROWS_BYTES = 1048576, 65536
local tasks, examined, bytes = {}, 0, 0
local claim_sessions = {}
-- The number of rows that a step of a scan is to return at most. It may return more.
local STEP = math.max(1, math.min(32, math.floor(limit / 4)))

-- The type of a task may be unknown. Its name is then `false`, and its queue is unknown, too, although it reads like the default queue.
local function is_wanted(name, queue)
  return not (by_name and name ~= wanted_name) and not (by_queue and (not name or queue ~= wanted_queue))
end

-- Returns `true` if a description has an entry whose task has failed, or if tasks that have not failed are also wanted.
local function is_wanted_failure(task)
  return not only_failed or task[5] and number_at('>I4', task[5], ENTRY_FAILURES) > 0
end

-- Adds a task if its description matches the filter.
local function add(task)
  if task and #task[1] == 16 and is_wanted(task[2], task[3]) and is_wanted_failure(task) then tasks[#tasks + 1] = task end
end

-- Returns `true` if the page has room for this number of rows, even if all of them match.
local function has_room(n) return #tasks + n <= limit and examined + n <= budget and bytes < MAX_SCANNED_BYTES end

-- ===== Rows =====

-- Returns `true` if an entry may have the wanted name. An entry ends with the name, so most entries with other names do not.
local function may_match(entry) return not by_name or #wanted_name == 0 or sub(entry or '', -#wanted_name) == wanted_name end

-- The following functions add tasks, given their ids and rows, or their ids and scores.

local function add_waiting(ids, rows)
  local running, due = call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
  for i, id in ipairs(ids) do
    local row = rows[i]
    if not running[i] and not due[i] and #row >= ALIVE_KIND_END then
      local name, queue = type_of(sub(row, ALIVE_KIND, ALIVE_KIND_END))
      if is_wanted(name, queue) then add(describe_waiting(id, row, name, queue)) end
    end
  end
end

-- Returns `true` if the wanted session has the claim of a running task, or if no session is wanted.
local function has_wanted_session(row)
  if wanted_session == '' then return true end
  local epoch = sub(row, 1, RUNNING_EPOCH_END)
  if not claim_sessions[epoch] then claim_sessions[epoch] = sub(call('HGET', CLAIMS, epoch .. 'o') or '', OWNER_SESSION) end
  return claim_sessions[epoch] == wanted_session
end

local function add_running(ids, rows)
  for i, id in ipairs(ids) do
    if may_match(rows[i]) and has_wanted_session(rows[i]) then add(describe_running(id, rows[i])) end
  end
end

local function add_ended(ids, rows)
  for i, id in ipairs(ids) do add(describe_result(id, rows[i], status)) end
end

local function add_delayed(ids, scores)
  for i, entry in ipairs(call('HMGET', DELAYED, unpack(ids))) do
    if may_match(entry) then add(describe_entry(ids[i], entry, tonumber(scores[i]))) end
  end
end

local function add_dead(ids, scores)
  for i, row in ipairs(call('HMGET', DEAD, unpack(ids))) do
    if may_match(row) then add(describe_dead(ids[i], row, scores[i])) end
  end
end

-- ===== Scans =====

-- Returns the first 16 bytes of an id.
local function position_of(id) return sub(id .. string.rep('\0', 16), 1, 16) end

-- Returns an id as numbers, since Lua compares strings by the server's locale.
local function numbers_of(id)
  local position = position_of(id)
  return { number_at('>I6', position), number_at('>I6', position, 7), number_at('>I4', position, 13) }
end

local function is_less(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end

-- Adds the rows of a step of a scan whose ids follow the last id, one by one, in the order of their ids. Returns `false` if the page is
-- full before all rows are added. Ids of another length are left out.
local function add_in_order(ids, rows, add_rows)
  local ordered, last = {}, last_id ~= '' and numbers_of(last_id)
  for i, id in ipairs(ids) do
    local order = numbers_of(id)
    if #id == 16 and (not last or is_less(last, order)) then ordered[#ordered + 1] = { order, id, rows[i] } end
  end
  table.sort(ordered, function(a, b) return is_less(a[1], b[1]) end)
  for _, it in ipairs(ordered) do
    if not has_room(1) then return false end
    examined, bytes, last_id = examined + 1, bytes + #it[3], it[2]
    add_rows({ it[2] }, { it[3] })
  end
  return true
end

-- Returns the cursor after a step of a scan of about `n` rows, the ids and the rows of the step, and the size of the rows.
local function step(key, n)
  local page = call('HSCAN', key, cursor, 'COUNT', n)
  local ids, rows, size = {}, {}, 0
  for i = 1, #page[2], 2 do
    ids[#ids + 1], rows[#ids + 1] = page[2][i], page[2][i + 1]
    size = size + #page[2][i + 1]
  end
  return page[1], ids, rows, size
end

-- Adds the rows of the shortest possible step. Returns the cursor after it, and `false` if the page is full before the step ends.
local function add_short_step(key, add_rows)
  local after, ids, rows = step(key, 1)
  if after ~= last_end then last_id = '' end
  return after, add_in_order(ids, rows, add_rows)
end

local function scan(key, add_rows)
  -- The first steps are small, since the rows may be large.
  local steps, n = 0, math.min(STEP, 4)
  repeat
    local after, is_whole = nil, true
    if last_id == '' then
      local ids, rows, size
      after, ids, rows, size = step(key, n)
      is_whole = has_room(#ids)
      if not is_whole and examined > 0 then return cursor, '', '' end
      if is_whole and #ids > 0 then
        examined, bytes = examined + #ids, bytes + size
        add_rows(ids, rows)
      end
    end
    if last_id ~= '' or not is_whole then after, is_whole = add_short_step(key, add_rows) end
    if not is_whole then return cursor, last_id, after end
    cursor, last_id, steps, n = after, '', steps + 1, bytes < LARGE_ROWS_BYTES and math.min(STEP, 2 * n) or 1
  until cursor == '0' or not has_room(1) or steps >= budget
  return cursor ~= '0' and cursor or '', '', ''
end

-- ===== Sorted sets =====

-- Returns the number of members of a sorted set that precede a score and an id. With `or_equal`, the member itself is counted, too.
local function rank_of(key, score, id, or_equal)
  local first, last = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  local wanted = numbers_of(id)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local member = call('ZRANGE', key, middle, middle)[1]
    local found = numbers_of(member)
    local is_before = is_less(found, wanted) or or_equal and not is_less(wanted, found)
    if is_before then first = middle + 1 else last = middle end
  end
  return first
end

-- Adds members of a sorted set. `read` returns some of them with their scores, given how many to skip, and how many to read at most.
local function walk(read, add_members)
  while has_room(1) do
    local page = read(examined, math.min(limit - #tasks, budget - examined, 64))
    local ids, scores = {}, {}
    for i = 1, #page, 2 do ids[#ids + 1], scores[#ids + 1] = page[i], page[i + 1] end
    if #ids == 0 then return '', '', '' end
    examined, last_id, cursor = examined + #ids, ids[#ids], scores[#ids]
    add_members(ids, scores)
  end
  return #read(examined, 1) > 0 and cursor or '', position_of(last_id), ''
end

local function walk_delayed()
  local first = last_id ~= '' and rank_of(DUE, cursor, last_id, true) or 0
  return walk(function(skipped, n) return call('ZRANGE', DUE, first + skipped, first + skipped + n - 1, 'WITHSCORES') end, add_delayed)
end

-- The newest dead letters come first. Expired ones are the oldest.
local function walk_dead()
  local oldest = string.format('(%.0f', dead_letter_cutoff())
  local unexpired = call('ZCOUNT', DIED, oldest, '+inf')
  local newer = last_id ~= '' and call('ZCARD', DIED) - rank_of(DIED, cursor, last_id, false) or 0
  return walk(function(skipped, n)
    local first = newer + skipped
    if first >= unexpired then return {} end
    return call('ZREVRANGE', DIED, first, math.min(first + n, unexpired) - 1, 'WITHSCORES')
  end, add_dead)
end

local next_cursor, next_id, next_end
if status == 'w' then next_cursor, next_id, next_end = scan(ALIVE, add_waiting)
elseif status == 'r' then next_cursor, next_id, next_end = scan(RUNNING, add_running)
elseif status == 'l' then next_cursor, next_id, next_end = walk_delayed()
elseif status == 'x' then next_cursor, next_id, next_end = walk_dead()
else next_cursor, next_id, next_end = scan(RESULTS, add_ended) end
return { next_cursor, next_id, next_end, examined, status == 'l' and now or store_time(), now, unpack(tasks) }
