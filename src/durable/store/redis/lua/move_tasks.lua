-- Moves tasks to another queue, as one transaction. A delayed task gets another entry. A waiting task must be found first, since no row
-- contains its position in its list. Its old entry stays there, with a tombstone, and a new entry is added to a list of the other queue.
--
-- The first run of the script, without a list, moves the delayed tasks, and returns the lists in which the others may wait. Each further
-- run reads a part of a list, from its end to its head, and moves the tasks that it finds there. If a list has several entries of a task,
-- the last one is valid, so it is found first.
--
-- Positions are counted from the head, so they change between two runs if other requests take entries from the head or put some there. In
-- the first case, some entries are read twice. In the second case, some entries are left out; the client then searches again.
--
-- The kind of a task in the other queue is a hash, which Redis cannot compute. So the client sends the kinds. If one is missing, the script
-- returns the name of the type, and the client runs it again.
--
-- Needs: lists, queues, groups, entry, alive_row, intact_entry.
-- Reads: epoch, tombstones.
-- Undo: move_tasks.
-- KEYS: NONE, META, READY, ALIVE, DELAYED, DUE, RUNNING, LEASE, TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS,
--   GROUPS.
--
-- ARGV[1]   -> the queue to which the tasks move, or empty for the default queue
-- ARGV[2]   -> the list to read, or empty
-- ARGV[3]   -> the group whose sublist is read, or empty
-- ARGV[4]   -> the number of entries at the head of the list that are still to be read, or empty to begin at its end
-- ARGV[5]   -> number of kinds, k
-- ARGV[6]   -> number of ids, n
-- ARGV[7..] -> k times: kind, kind in the other queue, priority; n ids
--
-- Output:
-- [1]   -> the number of entries at the head that are still to be read
-- [2..] -> for each task that is not left for a further run, its id and a letter:
--   `y` if it has moved
--   `s` if it is already in this queue
--   `n` if it is neither waiting nor delayed
--   `r` if a spawn may replace it
--   `d` if it is damaged
--   `w` if it waits and the script has no list to read, followed by its group and the path of its kind; it is not moved yet
--   `u` if its kind is missing, followed by the kind, the queue and the name of the type; it is not moved yet
--
-- Errors: UNDONE or PARTIAL if a command failed
-- The maximum number of entries that a run reads.
local MAX_ENTRIES = 1000
local queue, list, group, left = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local first_id = 7 + 3 * tonumber(ARGV[5])
local ids, kinds, output = { unpack(ARGV, first_id, first_id + tonumber(ARGV[6]) - 1) }, {}, { 0 }
for i = 7, first_id - 1, 3 do kinds[ARGV[i]] = { ARGV[i + 1], tonumber(ARGV[i + 2]) } end
if #ids == 0 then return output end
-- Pairs of ids and rows of tasks that move: of `alive` before and after, and of `delayed` before and after.
local alive_before, alive_after, delayed_before, delayed_after = {}, {}, {}, {}
-- The new entries of waiting tasks by their ids, and pairs of tombstones and their former numbers.
local entries, tombstone_rows = {}, {}
local tombstones = tonumber(meta[5]) or call('HLEN', TOMBSTONES)

local function tell(...) output[#output + 1] = { ... } end

local function push_pair(to, one, two)
  to[#to + 1] = one
  to[#to + 1] = two
end

-- Returns an entry in the other queue. The default queue has no groups.
local function moved(entry, kind, priority)
  local flags, extension, bits = byte(entry, ENTRY_FLAGS), '', 0
  local key, mode = task_key(entry, 0)
  local group = queue ~= '' and queues().group_of(entry, 0) or ''
  if queue ~= '' then bits, extension = 1, char(priority, #queue) .. queue end
  if group ~= '' then bits, extension = bits + 4, extension .. char(#group) .. group end
  if key ~= '' then bits, extension = bits + 2, extension .. key .. char(mode) end
  flags = flags - (flags % 4 >= 2 and 2 or 0) + (bits > 0 and 2 or 0)
  if bits > 0 then extension = pack('>I2', 1 + #extension) .. char(bits) .. extension end
  return sub(entry, 1, ENTRY_KIND - 1) .. kind .. char(flags) .. sub(entry, ENTRY_LENGTH, ENTRY_PAYLOAD - 1) .. extension
    .. sub(entry, ENTRY_PAYLOAD + extension_length(entry))
end

-- Returns `true` if a spawn may replace a task: the task holds a key that lasts until a worker claims it, and none has claimed it.
local function may_be_replaced(id, entry)
  local key, mode = task_key(entry, 0)
  local row = mode % 2 == 1 and call('HGET', HELD_KEYS, key)
  return row and sub(row, 1, HELD_ID_END) == id
end

-- Returns the entry of a task in the other queue, or nil if the task does not move. Adds the letter of the task to the output.
local function moved_entry(id, entry)
  if not is_intact(id, entry) then return tell(id, 'd') end
  local from = queues().queue_of(entry, 0)
  if from == queue then return tell(id, 's') end
  if may_be_replaced(id, entry) then return tell(id, 'r') end
  local kind = sub(entry, ENTRY_KIND, ENTRY_KIND_END)
  if not kinds[kind] then
    local inline = byte(entry, ENTRY_FLAGS) % 2 == 1 and number_at('>I4', entry, ENTRY_LENGTH) or 0
    return tell(id, 'u', kind, from, sub(entry, ENTRY_PAYLOAD + extension_length(entry) + inline))
  end
  tell(id, 'y')
  return moved(entry, kinds[kind][1], kinds[kind][2])
end

local function move_delayed(id, row, entry)
  local new = moved_entry(id, entry)
  if not new then return end
  push_pair(delayed_before, id, entry)
  push_pair(delayed_after, id, new)
  push_pair(alive_before, id, row)
  push_pair(alive_after, id, alive_row(new, 0))
end

local function move_waiting(id, row, entry)
  local new = moved_entry(id, entry)
  if not new then return end
  local tombstone = lists().tombstone_of(entry)
  local found = call('HGET', TOMBSTONES, tombstone)
  push_pair(tombstone_rows, tombstone, found and (tonumber(found) or 1) or 0)
  push_pair(alive_before, id, row)
  push_pair(alive_after, id, alive_row(new, 0))
  entries[id] = new
end

-- The rows of the waiting tasks, by id.
local waiting = {}

-- Reads the part of the list that precedes what was read before.
local function read_list()
  local key = group == '' and key_of(list) or groups().sublist_key(list, group)
  left = math.min(left or math.huge, call('LLEN', key))
  local from = math.max(left - MAX_ENTRIES, 0)
  local page = left > 0 and call('LRANGE', key, from, left - 1) or {}
  output[1] = from
  for i = #page, 1, -1 do
    local id = sub(page[i], 1, ENTRY_ID_END)
    local row = waiting[id]
    if row and sub(page[i], ENTRY_KIND, ENTRY_KIND_END) == sub(row, ALIVE_KIND, ALIVE_KIND_END) and lists().group_of(page[i]) == group then
      waiting[id] = nil
      move_waiting(id, row, page[i])
    end
  end
end

local rows, running, dues = call('HMGET', ALIVE, unpack(ids)), call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
for i, id in ipairs(ids) do
  local row = rows[i]
  if not row or #row < ALIVE_KIND_END or running[i] then tell(id, 'n')
  elseif dues[i] then move_delayed(id, row, call('HGET', DELAYED, id))
  elseif list ~= '' then waiting[id] = row
  else tell(id, 'w', sub(row, ALIVE_KEY_END + 1), lists().path_of(sub(row, ALIVE_KIND, ALIVE_KIND_END))) end
end
if list ~= '' then read_list() end
if #alive_after == 0 then return output end

-- The first write must be one that a server without memory accepts; it then accepts the others.
call('ZREM', LEASE, '')
local pushed = {}
for _, id in ipairs(ids) do
  if entries[id] then pushed[#pushed + 1], entries[id] = entries[id], nil end
end
local bundles = lists().at_the_end(pushed)
state.transaction = {
  undo = 'move_tasks', alive = alive_before, delayed = delayed_before, bundles = bundles, tombstone_rows = tombstone_rows,
  tombstones = tombstones,
}
if #delayed_after > 0 then call('HSET', DELAYED, unpack(delayed_after)) end
call('HSET', ALIVE, unpack(alive_after))
for i = 1, #tombstone_rows, 2 do call('HSET', TOMBSTONES, tombstone_rows[i], tombstone_rows[i + 1] + 1) end
if #tombstone_rows > 0 then call('HSET', META, 'tombstones', tombstones + #tombstone_rows / 2) end
lists().push('RPUSH', bundles)
state.transaction = nil
pcall(lists().wake_for, bundles)
return output
