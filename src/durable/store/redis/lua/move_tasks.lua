-- Moves tasks to another queue: see `moved_entries.lua`. A waiting task must be found first, since no row contains its position in its
-- list. `move_list.lua` moves many waiting tasks without a search.
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
-- Needs: moved_entries, alive_tail, type_names.
-- KEYS: NONE, META, READY, ALIVE, DELAYED, DUE, RUNNING, LEASE, TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS,
--   GROUPS, TYPES.
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
local list, group, left = ARGV[2], ARGV[3], tonumber(ARGV[4])
local first_id = 7 + 3 * tonumber(ARGV[5])
local ids = { unpack(ARGV, first_id, first_id + tonumber(ARGV[6]) - 1) }
output[1] = 0
for i = 7, first_id - 1, 3 do kinds[ARGV[i]] = { ARGV[i + 1], tonumber(ARGV[i + 2]) } end
if #ids == 0 then return output end

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

-- Returns `true` if a spawn may replace a waiting task of another queue, given its row in `alive`. So the task need not be found.
local function is_replaceable(id, row)
  local key = sub(row, ALIVE_KEY, ALIVE_KEY_END)
  local _, of = type_of(sub(row, ALIVE_KIND, ALIVE_KIND_END))
  local held = of ~= queue and #key == 16 and key ~= string.rep('\0', 16) and call('HGET', HELD_KEYS, key)
  return held and #held >= HELD_ENTRY and sub(held, 1, HELD_ID_END) == id
end

local rows, running, dues = call('HMGET', ALIVE, unpack(ids)), call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
for i, id in ipairs(ids) do
  local row = rows[i]
  if not row or #row < ALIVE_KIND_END or running[i] then tell(id, 'n')
  elseif dues[i] then move_delayed(id, row, call('HGET', DELAYED, id))
  elseif list ~= '' then waiting[id] = row
  elseif is_replaceable(id, row) then tell(id, 'r')
  else tell(id, 'w', group_in(row), lists().path_of(sub(row, ALIVE_KIND, ALIVE_KIND_END))) end
end
if list ~= '' then read_list() end
write_moves(ids)
return output
