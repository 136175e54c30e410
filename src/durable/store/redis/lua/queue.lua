-- Reads or changes a named queue.
--
-- Needs: lists, queues, groups, entry, waiting.
-- Undo: queue.
-- KEYS: NONE, META, READY, LEASE, RUNNING, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS, TYPES.
--
-- ARGV[1] -> queue
-- ARGV[2] -> "read", "set", "pause", "resume" or "update"
-- ARGV[3] -> to set the limits: the field s<queue> of `queues`, as for a queue that is not paused; to update groups: a cursor
--
-- Output when reading:
-- [1] -> 1 if the queue is paused, else 0
-- [2] -> maximum number of running tasks, or 0
-- [3] -> interval of the rate in microseconds, or 0
-- [4] -> burst of the rate
-- [5] -> revision of the limits
-- [6] -> number of waiting tasks
-- [7] -> number of running tasks
-- [8] -> maximum number of running tasks of each group, or 0
-- [9] -> quantum of groups
--
-- Output otherwise:
-- [1] -> 1, or 0 if the store has limits of a later revision
-- [2] -> cursor of the next running tasks whose groups are to be updated, or "0" if no more are left
--
-- Errors: UNDONE or PARTIAL if a command failed
local queue, what, row = ARGV[1], ARGV[2], call('HGET', QUEUES, 's' .. ARGV[1])
local is_readable = row and #row == SETTINGS_END
-- A row that cannot be read counts as that of a paused queue without limits: see `queues.lua`.
local before = is_readable and row or pack('>I1I4I6I4I4I4I4', row and 3 or 0, 0, 0, 0, 0, 0, 1)
local permits = PERMITS .. ':' .. queue

if what == 'read' then
  local flags, max_running, interval, burst, revision, group_max, quantum = number_at('>I1I4I6I4I4I4I4', before)
  return { flags % 2, max_running, interval, burst, revision, count_waiting(queue), call('SCARD', permits), group_max, quantum }
end

-- The first write must be one that a server without memory accepts; it then accepts the others.
call('ZREM', LEASE, '')
local after, cursor = row, '0'
if what == 'set' then
  if number_at('>I4', ARGV[3], SETTINGS_REVISION) < number_at('>I4', before, SETTINGS_REVISION) then return { 0, cursor } end
  after = sub(before, 1, 1) .. sub(ARGV[3], 2)
elseif what ~= 'update' then
  local flags = byte(before)
  after = char(flags - flags % 2 + (what == 'pause' and 1 or 0)) .. sub(before, 2)
end

-- Applies the limit to the groups of the next running tasks. No others can be affected. Returns the cursor of those that follow.
local function update_groups(from)
  local scan, seen, names = call('SSCAN', permits, from, 'COUNT', MAX_BATCH), {}, {}
  for _, it in ipairs(#scan[2] > 0 and call('HMGET', RUNNING, unpack(scan[2])) or {}) do
    local group = it and queues().group_of(it, RUNNING_ENTRY - 1) or ''
    if group ~= '' and not seen[group] then seen[group], names[#names + 1] = true, group end
  end
  if #names > 0 then groups().update(queue, names) end
  return scan[1]
end

state.transaction = { undo = 'queue', queue = queue, row = row }
if after ~= row then call('HSET', QUEUES, 's' .. queue, after) end
-- This happens even if the limit stays the same, since an earlier request may have stopped before all groups were updated.
if (what == 'set' or what == 'update') and byte(after or '') and byte(after) >= 2 then
  cursor = update_groups(what == 'update' and ARGV[3] or '0')
end
state.transaction = nil
-- This happens even if nothing has changed, since the request may be a repetition of one that has woken no worker.
pcall(lists().wake_queue, queue, 4)
return { 1, cursor }
