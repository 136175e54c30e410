-- Moves the waiting tasks of a list to another queue, a part at a time, from its head to its end, so it need not search for them. It passes
-- over tasks that a spawn may replace, damaged ones, and those of which the list may have several entries. The tasks of groups are in other
-- lists.
--
-- Positions are counted from the head. They change if other requests take entries from the head or put some there, so the client sends the
-- id of the last entry that it has passed. If that entry is not near its position any more, the list is read again from its head. Tasks
-- that have moved are then passed over, since their rows in `alive` have another kind. The number of entries that are left only falls, so
-- the pass ends even if workers claim from the list and new tasks come all the time.
--
-- Needs: moved_entries, alive_tail.
-- KEYS: NONE, META, READY, ALIVE, DELAYED, DUE, RUNNING, LEASE, TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS,
--   GROUPS.
--
-- ARGV[1]   -> the queue to which the tasks move, or empty for the default queue
-- ARGV[2]   -> the list
-- ARGV[3]   -> number of entries that were passed
-- ARGV[4]   -> id of the last of them, or empty
-- ARGV[5]   -> number of entries that are left, or empty for all
-- ARGV[6]   -> time in milliseconds since 1970, or empty. With a time, only tasks whose ids contain a time that is not later move.
-- ARGV[7]   -> number of kinds, k
-- ARGV[8..] -> k times: kind of the tasks that move, kind in the other queue, priority
--
-- Output:
-- [1]   -> number of entries that were passed
-- [2]   -> id of the last of them, or empty
-- [3]   -> number of entries that are left
-- [4]   -> number of entries that were read by this run
-- [5]   -> number of tasks that have moved
--
-- Errors: UNDONE or PARTIAL if a command failed
local MAX_ENTRIES, MAX_MOVED = 1000, 128
local list, passed, last_id, left, latest = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
for i = 8, 7 + 3 * tonumber(ARGV[7]), 3 do kinds[ARGV[i]] = { ARGV[i + 1], tonumber(ARGV[i + 2]) } end
local key, read = key_of(list), 0

local function id_of(entry) return sub(entry, 1, ENTRY_ID_END) end

-- Returns the number of entries up to the last one that was passed. If that is not near its position any more, returns 0.
local function find_passed()
  if passed == 0 then return 0 end
  local found = call('LINDEX', key, passed - 1)
  if found and id_of(found) == last_id then return passed end
  local from = math.max(passed - MAX_ENTRIES / 2, 0)
  local near = call('LRANGE', key, from, from + MAX_ENTRIES - 1)
  for i = #near, 1, -1 do
    if id_of(near[i]) == last_id then return from + i end
  end
  return 0
end

-- Returns `true` if the time in an id of version 7 is not later than the time of the filter.
local function is_early(id)
  if not latest then return true end
  local is_version_7 = math.floor(byte(id, 7) / 16) == 7 and math.floor(byte(id, 9) / 64) == 2
  return is_version_7 and number_at('>I6', id) <= latest
end

-- Returns the ids of the next tasks that the filter selects, and the last entry of each.
local function read_list()
  local ids, entries_by_id = {}, {}
  left = left or math.max(call('LLEN', key) - passed, 0)
  local page = left > 0 and call('LRANGE', key, passed, passed + math.min(left, MAX_ENTRIES) - 1) or {}
  if #page == 0 then left = 0 end
  for _, entry in ipairs(page) do
    if #ids == MAX_MOVED then break end
    local id = id_of(entry)
    passed, left, last_id, read = passed + 1, left - 1, id, read + 1
    if #entry >= ENTRY_PAYLOAD - 1 and kinds[sub(entry, ENTRY_KIND, ENTRY_KIND_END)] and is_early(id) then
      if not entries_by_id[id] then ids[#ids + 1] = id end
      entries_by_id[id] = entry
    end
  end
  return ids, entries_by_id
end

-- Returns `true` if a task waits and can move, given its row in `alive` and its entry. Other entries are those of tasks that were
-- cancelled, have been claimed, or have moved.
local function can_move(id, row, entry)
  return #row >= ALIVE_KIND_END and sub(row, ALIVE_KIND, ALIVE_KIND_END) == sub(entry, ENTRY_KIND, ENTRY_KIND_END)
    and group_in(row) == '' and is_intact(id, entry) and not may_be_replaced(id, entry)
    and call('HEXISTS', TOMBSTONES, lists().tombstone_of(entry)) == 0
end

passed = find_passed()
local ids, entries_by_id = read_list()
if #ids > 0 then
  local rows, running, dues = call('HMGET', ALIVE, unpack(ids)), call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
  for i, id in ipairs(ids) do
    local row, entry = rows[i], entries_by_id[id]
    if row and not running[i] and not dues[i] and can_move(id, row, entry) then move_waiting(id, row, entry) end
  end
  write_moves(ids)
end
return { passed, passed > 0 and last_id or '', left, read, #alive_after / 2 }
