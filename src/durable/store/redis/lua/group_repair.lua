-- Repairs what scripts know about groups: see `groups.lua`. The entries in the sublists, and the rows of running tasks, are what counts.
--
-- Needs: groups, queues, entry, lists, repair.

-- The number of rows of each kind that a pass checks.
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

-- Checks a group in a ring: whether tasks of it wait, and whether it has a turn if and only if it may be served.
local function check_sublist(list, group, turn)
  local queue, entry = queue_of_sublist(list, group)
  change_groups(function()
    if not entry then
      groups().write_turn(list, group, turn, nil)
      record_repair('a group without tasks is in a ring', group)
    elseif queue then
      -- The field of the queue may have been lost. Without it, no claim looks for groups.
      groups().mark(queue)
      if turn == 'inf' then groups().add_blocked(list, queue, { group }) end
      groups().update(queue, { group })
    end
  end)
end

local function check_rings()
  each_list(function(list)
    local key = groups().ring_key(list)
    local some = call('ZRANDMEMBER', key, 64, 'WITHSCORES')
    for i = 1, #some, 2 do check_sublist(list, some[i], some[i + 1]) end
  end)
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
  check_rings()
end
