-- Moves waiting tasks out of draining lists, one list or sublist per transaction. The tasks of a kind move to the next list of their path,
-- and keep their order.
--
-- No claim takes tasks from a draining list. So the groups of the list take turns when their tasks move. Otherwise, all tasks of a large
-- group would move, and could start, before any task of another group could be claimed.
--
-- Needs: transaction, lists.
-- Reads: epoch, tombstones.
-- Undo: drain.
-- Returns: a table of the functions `drain_all` and `drain_one`.

-- The maximum number of groups of which a script moves tasks.
local MAX_DRAINED_GROUPS = 64
-- The number of tasks of groups that count as one other task, since most of the cost is that of a group, however many of its tasks move.
-- A group that has moved more tasks than others does not start them earlier: see `turn_before` in `groups.lua`.
local GROUPED_SHARE = 4

-- `true` if a draining list is empty.
local is_drained = false
-- `true` if tasks have moved to the end of the list that they came from, since their path is damaged.
local is_stuck = false

-- Puts a group of which some tasks have moved behind the others, or removes it from a list in which it has no task left.
local function pass_turn(source, queue, is_empty)
  if is_empty then
    groups().write_turn(source.list, source.group, source.turn, nil)
  elseif source.turn ~= 'inf' and queue ~= '' then
    groups().write_turn(source.list, source.group, source.turn, groups().next_turn(queue))
  end
end

-- Moves at most `most` entries out of a list, or out of the sublist of a group. Unreadable ones are moved to the list `other`. Returns the
-- number of entries.
local function drain_source(source, most, other, queue)
  local list, key = source.list, source.key
  local entries = call('LRANGE', key, 0, most - 1)
  local length = #entries < most and #entries or call('LLEN', key)
  local bundles = lists().bundled(entries, function(path)
    local at = 1
    while sub(path, at, at + 15) ~= list and at < #path do at = at + 16 end
    local next = sub(path, at + 16, at + 31)
    return next ~= '' and next or sub(path, -16)
  end, other)
  for _, bundle in ipairs(bundles) do
    is_stuck = is_stuck or bundle.list == list
    local key = bundle.key
    -- The push itself reads the length of a sublist.
    if not bundle.group then bundle.before = call('LLEN', key) end
  end
  state.transaction = { undo = 'drain', bundles = bundles, key = key, entries = entries, length = length }
  lists().push('RPUSH', bundles)
  if #entries > 0 then call('LTRIM', key, #entries, -1) end
  if source.group then
    groups().add_entries(list, -#entries)
    pass_turn(source, queue, #entries == length and not is_stuck)
  end
  state.transaction = nil
  for _, bundle in ipairs(bundles) do state.pushed[#state.pushed + 1] = bundle end
  return #entries
end

-- Compares groups by their turns. Those with the same turn stay in their order.
local function by_turn(one, two)
  if one.turn ~= two.turn then return tonumber(one.turn) < tonumber(two.turn) end
  return one.nth < two.nth
end

-- Reads the next `n` groups of a draining list into a page, in the order of their turns.
local function read_groups(page, n)
  local rows = groups().ring_of(page.list, #page, #page + n - 1)
  for i = 1, #rows, 2 do
    local key = groups().sublist_key(page.list, rows[i])
    page[#page + 1] = { list = page.list, key = key, group = rows[i], turn = rows[i + 1] }
  end
  page.is_more = #rows == 2 * n
end

-- Returns the turn of the last group of a page.
local function last_turn_of(page) return tonumber(page[#page].turn) end

-- Returns the page with more groups in its list whose last group has the first turn, or nil. Groups after that turn may not be read yet.
-- Also returns the number of groups up to it.
local function first_page(pages)
  local first, known = nil, 0
  for _, page in ipairs(pages) do
    if page.is_more and (not first or last_turn_of(page) < last_turn_of(first)) then first = page end
  end
  for _, page in ipairs(pages) do
    for _, source in ipairs(page) do
      if not first or tonumber(source.turn) <= last_turn_of(first) then known = known + 1 end
    end
  end
  return first, known
end

-- Returns a page of each list. They have the groups whose turn it is first in any of the lists: `most`, if there are enough.
local function pages_of(draining, most)
  local pages = {}
  for i = #draining, 1, -1 do
    pages[#pages + 1] = { list = draining[i] }
    read_groups(pages[#pages], math.max(math.ceil(2 * most / #draining), 4))
  end
  local first, known = first_page(pages)
  while first and known < most do
    read_groups(first, #first)
    first, known = first_page(pages)
  end
  return pages
end

-- Returns the lists of which tasks without a group are to move. The last one is drained first: its tasks are older, and sessions claim
-- from the list that they move to. Also returns the groups whose turn it is in any of the lists, and groups that have no turn.
local function sources_of(draining, most_groups)
  local plain, grouped, blocked = {}, {}, {}
  for _, page in ipairs(pages_of(draining, most_groups)) do
    local key = key_of(page.list)
    local is_any = call('EXISTS', key) == 1
    if is_any then plain[#plain + 1] = { list = page.list, key = key } end
    for _, source in ipairs(page) do
      local some = source.turn == 'inf' and blocked or grouped
      some[#some + 1], source.nth = source, #some + 1
    end
    is_drained = is_drained or not is_any and #page == 0
  end
  table.sort(grouped, by_turn)
  return plain, grouped, blocked
end

-- Moves the same number of tasks of each group, and a share of the tasks without a group. Tasks that cannot start move last. Returns the
-- number of tasks, of which those of groups count as `GROUPED_SHARE` says, and the number of groups.
local function drain_round(draining, most, most_groups, other, queue)
  local plain, grouped, blocked = sources_of(draining, most_groups)
  if #plain + #grouped == 0 then grouped = blocked end
  local n, left = math.min(#grouped, most_groups), most
  local each = n > 0 and math.max(math.floor(most / (#plain + n)), 1) or most
  for i = 1, n do
    if left > 0 then
      left = left - math.ceil(drain_source(grouped[i], GROUPED_SHARE * math.min(each, left, MAX_BATCH), other, queue) / GROUPED_SHARE)
    end
  end
  for _, source in ipairs(plain) do
    if left > 0 then left = left - drain_source(source, math.min(each, left), other, queue) end
  end
  return most - left, n
end

-- Moves a limited number of tasks. Returns `true` if a draining list is empty, and can be removed from the routes.
local function drain_all(draining, leaves, queue)
  local left, groups_left = MAX_BATCH, MAX_DRAINED_GROUPS
  repeat
    local moved, moved_groups = drain_round(draining, left, groups_left, leaves[1], queue)
    left, groups_left = left - moved, groups_left - moved_groups
    -- Tasks may have moved into a list that was drained before, and groups may have had fewer tasks than their share.
  until moved == 0 or left <= 0 or groups_left <= 0 or is_stuck
  return is_drained
end

-- Moves at most `most` tasks out of one list. Unreadable ones stay in the list. Returns the number of tasks.
local function drain_one(list, most) return (drain_round({ list }, most, MAX_DRAINED_GROUPS, list, '')) end

return { drain_all = drain_all, drain_one = drain_one }
