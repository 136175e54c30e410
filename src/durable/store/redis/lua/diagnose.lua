-- Examines what an overview does not show. Writes nothing.
--
-- Needs: worker_rows, served_lists, waiting, retention.
-- KEYS: NONE, META, SESSIONS, READY, CLAIMS, LEASE, DIED, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS, SCHEDULES, SCHEDULE_TIMES,
--   TYPES, CARDS.
--
-- Output:
-- [1] -> time in milliseconds since 1970
-- [2] -> number of dead letters
-- [3] -> maximum number of dead letters
-- [4] -> number of claims whose lease has been over for more than two lease times, of the first claims
-- [5] -> descriptions of those of the first workers that are not live: see `worker_rows.lua`
-- [6] -> names and rows of the schedules that are handed out next
-- [7] -> for each list in which tasks wait that no live worker claims, of the first lists: the type of its first task, as in a row of
--   `types`; 1 if live workers know the type, so it is paused, else 0; time for which the task has been ready, in milliseconds
local MAX_WORKERS, MAX_CLAIMS, MAX_SCHEDULES, MAX_FOUND = 200, 100, 64, 100

-- Released claims have a lease that ends at 0.
local function overdue_claims()
  local n, claims = 0, call('ZRANGEBYSCORE', LEASE, 1, now, 'WITHSCORES', 'LIMIT', 0, MAX_CLAIMS)
  for i = 1, #claims, 2 do
    local owner = call('HGET', CLAIMS, claims[i] .. 'o')
    local lease = owner and #owner >= OWNER_SESSION and number_at('>I6', owner, OWNER_LEASE)
    if lease and now - tonumber(claims[i + 1]) > 2 * lease then n = n + 1 end
  end
  return n
end

local function workers_in_trouble()
  local workers = {}
  each_card('-', MAX_WORKERS, function(id, member)
    local worker = worker_of(id, member)
    if worker and worker[4] > 0 then workers[#workers + 1] = worker end
  end)
  return workers
end

local function next_schedules()
  local found = {}
  for needs = 1, 2 do
    local key = SCHEDULE_TIMES .. ':' .. needs
    local names = call('ZRANGE', key, 0, MAX_SCHEDULES - 1)
    local rows = #names > 0 and call('HMGET', SCHEDULES, unpack(names)) or {}
    for i, row in ipairs(rows) do
      if row then found[#found + 1], found[#found + 2] = names[i], row end
    end
  end
  return found
end

-- ===== Tasks that no worker claims =====

-- Returns the first entry of a list, or of the sublists of its groups.
local function first_of(list)
  local key = key_of(list)
  local entry = first_waiting(key)
  if entry then return entry end
  local group = groups().ring_of(list, 0, 0)[1]
  if not group then return nil end
  local sublist = groups().sublist_key(list, group)
  return first_waiting(sublist)
end

-- Describes the first task of a list. Returns nil if there is none, or if its type was not recorded. `leaves` has the lists that live
-- workers would claim from, if no type were paused.
local function first_task_of(list, leaves)
  local entry = first_of(list)
  if not entry or #entry < ENTRY_KIND_END then return nil end
  local kind = sub(entry, ENTRY_KIND, ENTRY_KIND_END)
  local row = call('HGET', TYPES, kind)
  if not row or #row < TYPE_QUEUE then return nil end
  local is_known = leaves[sub(lists().path_of(kind), -16)]
  local ready_at = number_at('>I6', entry, ENTRY_READY_AT)
  return { sub(row, TYPE_QUEUE_LENGTH), is_known and 1 or 0, math.max(now - ready_at, 0) }
end

-- Returns the lists of the types that clients have recorded, up to a limit.
local function lists_of_types()
  local found, seen, cursor, examined = {}, {}, '0', 0
  repeat
    local page = call('HSCAN', TYPES, cursor, 'COUNT', 100)
    for i = 1, #page[2], 2 do
      local path = #page[2][i] == 8 and lists().path_of(page[2][i]) or ''
      for at = 1, #path, 16 do
        local list = sub(path, at, at + 15)
        if not seen[list] then seen[list], found[#found + 1] = true, list end
      end
    end
    cursor, examined = page[1], examined + #page[2] / 2
  until cursor == '0' or examined >= MAX_HEAD_LISTS
  return found
end

local function unclaimed_types()
  local leaves, draining, unread = served_lists()
  local found = {}
  for _, list in ipairs(lists_of_types()) do
    local is_claimed = (leaves[list] or draining[list]) and not unread[list]
    if #found < MAX_FOUND and not is_claimed then found[#found + 1] = first_task_of(list, leaves) end
  end
  return found
end

return { now, call('ZCARD', DIED), retention().dead_most, overdue_claims(), workers_in_trouble(), next_schedules(), unclaimed_types() }
