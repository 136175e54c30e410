-- Repairs what scripts know about groups: see `groups.lua`. The entries in the sublists, and the rows of running tasks, are what counts.
--
-- Needs: groups, queues, entry, lists, repair.
-- Defines: change_groups, recount_sublists, restore_sublist, check_rings, repair_groups.

-- The number of groups in rings that a pass checks, and of rows of each kind.
local GROUPS_PER_PASS = MAX_BATCH

-- Runs a change of groups outside of the transactions of a script. If it fails, the next pass repairs what is left.
local function change_groups(change)
  state.transaction = { undo = 'nothing' }
  change()
  state.transaction = nil
end

-- Returns the queue of a sublist, or nil if the sublist is empty or its first entry cannot be read.
local function queue_of_sublist(list, group)
  local key = groups().sublist_key(list, group)
  local entry = call('LINDEX', key, 0)
  local queue = entry and is_entry(entry) and queues().queue_of(entry, 0) or ''
  return queue ~= '' and queue or nil, entry
end

-- Counts the entries in the sublists of a list again, unless there are many sublists. The number is needed to find lost tasks.
local function recount_sublists(list)
  local some, n = groups().ring_of(list, 0, 4 * MAX_BATCH), 0
  if #some > 8 * MAX_BATCH then return end
  for i = 1, #some, 2 do
    local key = groups().sublist_key(list, some[i])
    n = n + call('LLEN', key)
  end
  if n == groups().entries_in(list) then return end
  record_repair('the number of entries of groups in a list is wrong', list)
  if n > 0 then call('HSET', GROUPS, 'n' .. list, n) else call('HDEL', GROUPS, 'n' .. list) end
end

-- Puts a group that waits in a sublist, and is in no ring, back into the ring of the list. Returns `true` if it was missing.
local function restore_sublist(list, group)
  local key = groups().sublist_key(list, group)
  if call('EXISTS', key) == 0 or groups().turn_in(list, group) then return false end
  local queue = queue_of_sublist(list, group)
  change_groups(function()
    groups().write_turn(list, group, nil, 1)
    groups().add_entries(list, call('LLEN', key))
    if queue then groups().mark(queue) end
    if queue then groups().update(queue, { group }) end
  end)
  record_repair('a group is in no ring', group)
  return true
end

-- Returns the queue of a group in a ring, or nil if it cannot be read. Removes keys of the group that have another type, and the group if
-- no task of it waits.
local function check_sublist(list, group, turn)
  local key = groups().sublist_key(list, group)
  -- Now that at least one task is lost, the numbers are to differ, so that a census finds out which ones.
  if remove_other_type('LLEN', key) then change_groups(function() groups().add_entries(list, -1) end) end
  local queue, entry = queue_of_sublist(list, group)
  if queue then remove_other_type('SCARD', groups().permits_key(queue, group)) end
  if not entry then
    change_groups(function() groups().write_turn(list, group, turn, nil) end)
    record_repair('a group without tasks is in a ring', group)
  end
  return queue
end

-- Checks whether groups in a ring have a turn that will come if and only if they may be served. Returns `true` if some
-- would have waited for good.
local function check_turns(list, queue, turns)
  local names, waiting, last, is_any = {}, {}, groups().last_turn(queue), false
  -- The field of the queue may have been lost. Without it, no claim looks for groups.
  groups().mark(queue)
  for group, turn in pairs(turns) do
    names[#names + 1] = group
    if turn == 'inf' then
      waiting[#waiting + 1] = group
    elseif tonumber(turn) > last then
      groups().write_turn(list, group, turn, groups().next_turn(queue))
      record_repair('the turn of a group would not come', group)
      is_any = true
    end
  end
  if #waiting > 0 and groups().add_blocked(list, queue, waiting) then
    record_repair('groups wait, and no permit would give them a turn', waiting[1])
    is_any = true
  end
  if not groups().update(queue, names) then return is_any end
  state.freed = state.freed or {}
  state.freed[queue] = true
  return true
end

-- Checks groups of a list. `rows` has their names, each followed by its turn.
local function check_sublists(list, rows)
  local turns_by_queue, is_any = {}, false
  for i = 1, #rows, 2 do
    local queue = check_sublist(list, rows[i], rows[i + 1])
    if queue then
      turns_by_queue[queue] = turns_by_queue[queue] or {}
      turns_by_queue[queue][rows[i]] = rows[i + 1]
    end
  end
  change_groups(function()
    for queue, turns in pairs(turns_by_queue) do is_any = check_turns(list, queue, turns) or is_any end
  end)
  return is_any
end

-- Checks the next groups in rings, list by list. The field `rings` of `meta` is the position: a list, and a cursor of its ring. It is
-- stored first, so that a failure does not stop later passes. Returns `true` if other groups probably wait for turns that would not come.
local function check_rings()
  local all, at, left, is_any = {}, call('HGET', META, 'rings') or '', GROUPS_PER_PASS, false
  each_list(function(list) all[#all + 1] = list end)
  table.sort(all)
  for i, list in ipairs(all) do
    local key, cursor = groups().ring_key(list), sub(at, 1, 16) == list and cursor_of(sub(at, 17)) or list > at and '0'
    while cursor and left > 0 do
      local scan = call('ZSCAN', key, cursor, 'COUNT', left)
      cursor = scan[1] ~= '0' and scan[1]
      if #scan[2] > 0 then
        call('HSET', META, 'rings', cursor and list .. cursor or all[i + 1] or '')
        is_any, left = check_sublists(list, scan[2]) or is_any, left - #scan[2] / 2
      end
    end
  end
  if left > 0 then call('HDEL', META, 'rings') end
  return is_any
end

-- Takes permits of a group back from tasks that do not run.
local function check_group_permits(queue, group)
  local key, gone = groups().permits_key(queue, group), {}
  remove_other_type('SCARD', key)
  local ids = call('SRANDMEMBER', key, GROUPS_PER_PASS)
  for i, row in ipairs(#ids > 0 and call('HMGET', RUNNING, unpack(ids)) or {}) do
    if not row then gone[#gone + 1] = ids[i] end
  end
  if #gone == 0 then return end
  call('SREM', key, unpack(gone))
  record_repair('tasks that do not run have permits of a group', gone[1])
  state.freed = state.freed or {}
  state.freed[queue] = true
end

-- Checks a row of `groups`. Rows of groups that have nothing to wait for are removed.
local function check_group_row(field, is_empty)
  local form, rest, row = sub(field, 1, 1), sub(field, 2), call('HGET', GROUPS, field)
  local queue, group = string.match(rest, '^(%Z+)%z(.+)$')
  if form == 'b' and queue and row and #row % 16 == 0 then
    check_group_permits(queue, group)
    change_groups(function() groups().update(queue, { group }) end)
  elseif form == 'n' and #rest == 16 and row and is_integer(row) then
    if is_empty then recount_sublists(rest) end
  elseif form ~= 't' or not row or not is_integer(row) or is_empty then
    call('HDEL', GROUPS, field)
    if not is_empty then record_repair('a row of groups cannot be read', row) end
    if form == 'n' then recount_sublists(rest) end
  end
end

local function repair_groups()
  local some = call('HRANDFIELD', GROUPS, GROUPS_PER_PASS)
  local is_empty = #some > 0 and call('EXISTS', ALIVE) == 0
  for _, field in ipairs(some) do check_group_row(field, is_empty) end
end
