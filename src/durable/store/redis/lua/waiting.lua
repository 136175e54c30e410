-- Counts the waiting tasks of queues.
--
-- Needs: lists, queues, groups.
local made_tombstones

-- Returns the number of tombstones in each list, that is, of tasks that were cancelled but are still in it. If there are very many, none is
-- counted.
local function tombstones_by_list()
  if made_tombstones then return made_tombstones end
  made_tombstones = {}
  if call('HLEN', TOMBSTONES) > 4 * MAX_BATCH then return made_tombstones end
  local all = call('HGETALL', TOMBSTONES)
  for i = 1, #all, 2 do
    local list = sub(lists().path_of(sub(all[i], TOMBSTONE_KIND, TOMBSTONE_KIND_END)), -16)
    made_tombstones[list] = (made_tombstones[list] or 0) + (tonumber(all[i + 1]) or 1)
  end
  return made_tombstones
end

-- Returns the number of tasks that wait in lists of a queue. `ids` contains the ids of the lists.
local function count_waiting(queue, ids)
  local n, gone, is_grouped = 0, 0, queues().is_grouped(queue)
  for at = 1, #ids, 16 do
    local list = sub(ids, at, at + 15)
    local key = key_of(list)
    n = n + call('LLEN', key) + (is_grouped and groups().entries_in(list) or 0)
  end
  if n == 0 then return 0 end
  -- The entry of a tombstone may be in another list of its path, which has tasks of the same queue.
  for at = 1, #ids, 16 do gone = gone + (tombstones_by_list()[sub(ids, at, at + 15)] or 0) end
  return math.max(n - gone, 0)
end
