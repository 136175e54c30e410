-- Moves tasks to another queue, as one transaction. A delayed task gets another entry. The old entry of a waiting task stays in its list,
-- with a tombstone, and a new entry is added to a list of the other queue.
--
-- Needs: lists, queues, groups, entry, alive_row, intact_entry.
-- Reads: epoch, tombstones.
-- Undo: move_tasks.
-- Defines: queue, kinds, output, alive_after, tell, may_be_replaced, move_delayed, move_waiting, write_moves.
--
-- ARGV[1] -> the queue to which the tasks move, or empty for the default queue

-- The queue to which the tasks move, or empty for the default queue; and by kind, the kind in the other queue and the priority.
local queue, kinds = ARGV[1], {}
-- The answers about tasks: see `move_tasks.lua`.
local output = {}
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
  local parent = parent_in(entry, 0)
  if queue ~= '' then bits, extension = 1, char(priority, #queue) .. queue end
  if group ~= '' then bits, extension = bits + 4, extension .. char(#group) .. group end
  if parent ~= '' then bits, extension = bits + 8, extension .. parent end
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

-- Writes the moves of these tasks, in their order.
local function write_moves(ids)
  if #alive_after == 0 then return end
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
end
