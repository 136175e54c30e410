-- Reads the names of queues and types, or describes queues.
--
-- Needs: waiting.
-- KEYS: NONE, META, READY, LEASE, RUNNING, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS, TYPES.
--
-- ARGV[1]   -> number of queues to describe, n, or empty to read names
-- ARGV[2..] -> n times: name of the queue, which is empty for the default queue; the lists from which workers claim; its sets
--
-- Output when reading names:
-- [1] -> time in milliseconds
-- [2] -> names of the queues that have limits or are paused
-- [3] -> types, each with the length of the name of its queue 1, the name of the queue, and the name of the type. Empty if there are more
--   than MAX_LISTED_TYPES.
--
-- Output when describing queues, for each queue:
-- [1..9] -> as the output of `queue.lua`. Running tasks that belong to none of these queues count for the default queue.
-- [10]   -> longest time for which the first task of a list has been ready, in milliseconds, or -1
-- [11]   -> number of sessions
local MAX_LISTED_TYPES = 2000

-- Returns the names of queues in the fields of `queues` that contain limits.
local function queue_names()
  local names = {}
  for _, field in ipairs(call('HKEYS', QUEUES)) do
    if sub(field, 1, 1) == 's' and #field > 1 then names[#names + 1] = sub(field, 2) end
  end
  return names
end

local function types()
  local names, seen = {}, {}
  if call('HLEN', TYPES) > MAX_LISTED_TYPES then return names end
  for _, row in ipairs(call('HVALS', TYPES)) do
    local name = sub(row, TYPE_QUEUE_LENGTH)
    if name ~= '' and not seen[name] then seen[name], names[#names + 1] = true, name end
  end
  return names
end

-- Returns the longest time for which the first task of one of these lists has been ready, or -1. The tasks of groups are not examined.
local function waited(ids)
  local longest = -1
  for at = 1, #ids, 16 do
    local key = key_of(sub(ids, at, at + 15))
    local entry = first_waiting(key)
    if entry and #entry >= ENTRY_KIND then
      local ready_at = number_at('>I6', entry, ENTRY_READY_AT)
      longest = math.max(longest, now - ready_at, 0)
    end
  end
  return longest
end

local function sessions_of(sets)
  local n = 0
  for at = 1, #sets, 8 do n = n + (tonumber(call('HGET', ROUTES, 'n' .. sub(sets, at, at + 7)) or '0') or 0) end
  return n
end

-- A row that cannot be read counts as that of a paused queue without limits: see `queues.lua`.
local function settings_of(queue)
  local row = call('HGET', QUEUES, 's' .. queue)
  if not row or #row ~= SETTINGS_END then row = pack('>I1I4I6I4I4I4I4', row and 3 or 0, 0, 0, 0, 0, 0, 1) end
  return number_at('>I1I4I6I4I4I4I4', row)
end

if ARGV[1] == '' then return { now, queue_names(), types() } end

local answer, default, others = {}, nil, 0
for i = 2, 3 * tonumber(ARGV[1]) + 1, 3 do
  local queue, ids, sets = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local flags, max_running, interval, burst, revision, group_max, quantum = settings_of(queue)
  local key = PERMITS .. ':' .. queue
  local running = queue == '' and 0 or call('SCARD', key)
  local it = {
    flags % 2, max_running, interval, burst, revision, count_waiting(queue), running, group_max, quantum,
    waited(ids), sessions_of(sets),
  }
  if queue == '' then default = it else others = others + running end
  answer[#answer + 1] = it
end
if default then default[7] = math.max(call('HLEN', RUNNING) - others, 0) end
return answer
