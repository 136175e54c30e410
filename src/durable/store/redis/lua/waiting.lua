-- Counts the waiting tasks of queues, and finds the first ones of lists.
--
-- Needs: lists, queues, groups, queue_lists.
-- Defines: count_waiting, first_waiting.
local made_tombstones

-- Returns some of the tombstones and their numbers: all of them, or if there are many, a random part.
local function some_tombstones()
  if call('HLEN', TOMBSTONES) <= 4 * MAX_BATCH then return call('HGETALL', TOMBSTONES) end
  local some, cursor = {}, '0'
  repeat
    local page = call('HSCAN', TOMBSTONES, cursor, 'COUNT', MAX_BATCH)
    for i = 1, #page[2] do some[#some + 1] = page[2][i] end
    cursor = page[1]
  until cursor == '0' or #some >= 8 * MAX_BATCH
  return some
end

-- Returns the number of tombstones in each list. Tasks that were cancelled or have moved stay in their lists for a while. If there are
-- many, the numbers are estimated.
local function tombstones_by_list()
  if made_tombstones then return made_tombstones end
  made_tombstones = {}
  local some = some_tombstones()
  for i = 1, #some, 2 do
    local list = sub(lists().path_of(sub(some[i], TOMBSTONE_KIND, TOMBSTONE_KIND_END)), -16)
    made_tombstones[list] = (made_tombstones[list] or 0) + (tonumber(some[i + 1]) or 1)
  end
  local share = #some / 2 / math.max(call('HLEN', TOMBSTONES), 1)
  for list, n in pairs(made_tombstones) do made_tombstones[list] = math.floor(n / share + 0.5) end
  return made_tombstones
end

-- Returns the number of tasks of a queue that wait, including those whose types no worker knows.
local function count_waiting(queue)
  local n, gone, is_grouped, found = 0, 0, queues().is_grouped(queue), lists_of_queue(queue)
  for _, list in ipairs(found) do
    local key = key_of(list)
    n = n + call('LLEN', key) + (is_grouped and groups().entries_in(list) or 0)
  end
  if n == 0 then return 0 end
  -- The entry of a tombstone may be in another list of its path, which has tasks of the same queue.
  for _, list in ipairs(found) do gone = gone + (tombstones_by_list()[list] or 0) end
  return math.max(n - gone, 0)
end

-- Returns the entry of the first task that waits in a list, or nil if there is none, or if it is behind many tasks that were cancelled or
-- have moved.
local function first_waiting(key)
  local first, left, MAX_LOOKS = call('LINDEX', key, 0), {}, 100
  if not first or call('HEXISTS', TOMBSTONES, lists().tombstone_of(first)) == 0 then return first end
  for _, entry in ipairs(call('LRANGE', key, 0, MAX_LOOKS - 1)) do
    local tombstone = lists().tombstone_of(entry)
    left[tombstone] = (left[tombstone] or tonumber(call('HGET', TOMBSTONES, tombstone) or '') or 0) - 1
    if left[tombstone] < 0 then return entry end
  end
end
