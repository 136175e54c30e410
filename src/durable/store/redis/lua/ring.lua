-- Selects the tasks that a claim takes from the groups of a list.
--
-- Needs: groups, claim_scan.

-- The number of lanes without a task to claim that a claim looks at.
local MAX_IDLE_LANES = 256

-- Returns the next groups of a ring, from a rank on, that have turns. Fields of a lane: `group`, its `turn`, the `permits` of the group,
-- the `scan` of its entries, `ids` of claimed tasks, and, after the selection, `is_served` and `has_rest`.
local function read_ring(list, rank, n)
  local key, lanes = groups().ring_key(list), {}
  local rows = call('ZRANGE', key, rank, rank + n - 1, 'WITHSCORES')
  for i = 1, #rows, 2 do
    if rows[i + 1] == 'inf' then break end
    lanes[#lanes + 1] = { group = rows[i], turn = rows[i + 1], ids = {} }
  end
  return lanes, 2 * #lanes == #rows and #lanes == n
end

-- Returns a function that returns the lanes of a list, and then again those that were passed to the second function.
local function lanes_of(list)
  local lanes, at, rank, is_more = {}, 0, 0, true
  local function next_lane()
    at = at + 1
    if not lanes[at] and is_more then
      local page
      page, is_more = read_ring(list, rank, math.max(math.min(want - #claimed, 64), 1))
      rank = rank + #page
      for _, lane in ipairs(page) do lanes[#lanes + 1] = lane end
    end
    return lanes[at]
  end
  local again = {}
  return function() return next_lane() or table.remove(again, 1) end, function(lane) again[#again + 1] = lane end
end

-- Selects up to the wanted number of tasks from the groups of a list. Each group gives up to a quantum of tasks, then it is the turn of
-- the next one. Returns the lanes, those that were served last at the end.
local function select_from_groups(list, queue)
  local max_running, quantum = queues().group_settings(queue)
  local next_lane, return_lane = lanes_of(list)
  local has_holds, order, idle = groups().hold_wait(queue), {}, 0
  local function open(lane)
    lane.permits = max_running > 0 and groups().free_permits(queue, lane.group) or math.huge
    -- It had a turn in a list that was not checked when it was held.
    if has_holds and groups().is_held(queue, lane.group) then lane.permits = 0 end
    local key = groups().lane_key(list, lane.group)
    lane.scan = scan_entries(key)
    order[#order + 1] = lane
  end
  while #claimed < want and not is_full and idle < MAX_IDLE_LANES do
    local lane = next_lane()
    if not lane then break end
    if not lane.scan then open(lane) end
    local before = #claimed
    lane.scan.select(math.min(want, before + math.min(quantum, lane.permits)))
    local given = #claimed - before
    for i = before + 1, #claimed do lane.ids[#lane.ids + 1] = sub(claimed[i], 1, ENTRY_ID_END) end
    lane.permits = lane.permits - given
    if given > 0 then
      lane.is_served, lane.nth = true, #claimed
      return_lane(lane)
    else
      idle = idle + 1
    end
  end
  table.sort(order, function(a, b) return (a.nth or 0) < (b.nth or 0) end)
  for _, lane in ipairs(order) do lane.has_rest = lane.scan.has_rest() end
  return order
end
