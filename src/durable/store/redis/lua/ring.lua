-- Selects the tasks that a claim takes from the groups of a list, in the order of the ring.
--
-- Needs: groups, claim_scan.
-- Defines: MAX_IDLE_SUBLISTS, read_ring, select_from_groups.

-- The maximum number of sublists without a claimable task that a claim reads.
local MAX_IDLE_SUBLISTS = 256

-- The number of tasks after which a claim stops if the groups have a limit. The permits of each group take some commands, during which the
-- server does nothing else.
local MAX_LIMITED = 128

-- Returns the next groups of a ring, from a rank on, that have turns. Fields of a sublist: `group`, its `turn`, the `permits` of the group,
-- the `scan` of its entries, `ids` of claimed tasks, and, after the selection, `is_served` and `has_rest`.
local function read_ring(list, rank, n)
  local key, sublists = groups().ring_key(list), {}
  local rows = call('ZRANGE', key, rank, rank + n - 1, 'WITHSCORES')
  for i = 1, #rows, 2 do
    if rows[i + 1] == 'inf' then break end
    sublists[#sublists + 1] = { group = rows[i], turn = rows[i + 1], ids = {} }
  end
  return sublists, 2 * #sublists == #rows and #sublists == n
end

-- Returns a function that returns the sublists of a list, and then again those that were passed to the second function.
local function sublists_of(list, quantum)
  local sublists, at, rank, is_more = {}, 0, 0, true
  local function next_sublist()
    at = at + 1
    if not sublists[at] and is_more then
      local page
      page, is_more = read_ring(list, rank, math.max(math.min(math.ceil((want - #claimed) / quantum), 64), 1))
      rank = rank + #page
      for _, sublist in ipairs(page) do sublists[#sublists + 1] = sublist end
    end
    return sublists[at]
  end
  local again = {}
  return function() return next_sublist() or table.remove(again, 1) end, function(sublist) again[#again + 1] = sublist end
end

-- Selects up to the wanted number of tasks from the groups of a list: up to a quantum of tasks from one group, then from the next one.
-- Returns the sublists in the order in which they were last served.
local function select_from_groups(list, queue)
  local max_running, quantum = queues().group_settings(queue)
  local next_sublist, return_sublist = sublists_of(list, quantum)
  local has_holds, order, idle = groups().hold_wait(queue), {}, 0
  local function open(sublist)
    sublist.permits = max_running > 0 and groups().free_permits(queue, sublist.group) or math.huge
    -- It had a turn in a list that was not checked when it was held.
    if has_holds and groups().is_held(queue, sublist.group) then sublist.permits = 0 end
    local key = groups().sublist_key(list, sublist.group)
    sublist.scan = scan_entries(key, sublist.group)
    order[#order + 1] = sublist
  end
  while #claimed < want and not is_full and idle < MAX_IDLE_SUBLISTS and scans_left > 0 do
    local sublist = next_sublist()
    if not sublist then break end
    if not sublist.scan then open(sublist) end
    local before = #claimed
    sublist.scan.select(math.min(want, before + math.min(quantum, sublist.permits)))
    local given = #claimed - before
    for i = before + 1, #claimed do sublist.ids[#sublist.ids + 1] = sub(claimed[i], 1, ENTRY_ID_END) end
    sublist.permits = sublist.permits - given
    if given > 0 then
      sublist.is_served, sublist.nth = true, #claimed
      return_sublist(sublist)
    else
      idle = idle + 1
    end
    -- The next turn continues here. Tasks without a group come after those that are left.
    if max_running > 0 and #claimed >= MAX_LIMITED then want = #claimed end
  end
  -- If the claim stops because of quarantined tasks, the next one looks at other groups.
  local is_over = idle >= MAX_IDLE_SUBLISTS or scans_left <= 0
  for _, sublist in ipairs(order) do sublist.is_served = sublist.is_served or is_over and #sublist.scan.passed > 0 end
  table.sort(order, function(a, b) return (a.nth or 0) < (b.nth or 0) end)
  for _, sublist in ipairs(order) do sublist.has_rest = sublist.scan.has_rest() end
  return order
end
