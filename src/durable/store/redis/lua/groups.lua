-- The groups of tasks within named queues, which take turns. See `queue/group.rs` for their settings.
--
-- The tasks of a group wait in *sublists*: `ready:<list>:<group>` is the sublist of a group in a list. The sorted set `groups:ring:<list>`
-- has the groups that have a sublist, even if the sublist has only entries of cancelled tasks. The score of a group is its turn. The turn
-- is a number if the group lets a task start, that is, if it is not held and has a permit; otherwise, the turn is `inf`. The group with the
-- lowest number is served next. Groups with the same number are in the order of their names.
--
-- A running task of a group has a permit: its id is in the set `permits:<queue>\0<group>`. The sorted set `groups:hold:<queue>` has the
-- groups that are held. The score of a group is the time at which its hold is over.
--
-- Fields of `groups`:
--
-- n<list>            -> number of entries in all sublists of a list
-- b<queue>\0<group>  -> lists in which the turn of a group is `inf`, 16 bytes each
-- t<queue>           -> last turn that was issued in a queue
--
-- Each write is undone with the transaction in which it happens: see `undo_with`.
--
-- Needs: queues.
-- Defines: groups.
--
-- `queues.lua` declares the variable `groups`, since each of the two parts calls the other. `groups()` returns its functions in a table.
local made_groups
function groups()
  if made_groups then return made_groups end
  local turns, lists_of_queue, has_holds = {}, {}, {}
  local tombstones_text, looks_left, MAX_TURN = nil, 4 * MAX_BATCH, 1e15

  -- Adds a function that undoes a write to those of the current transaction. The write may have failed.
  local function undo_with(undo)
    local t = state.transaction
    t.group_undos = t.group_undos or {}
    t.group_undos[#t.group_undos + 1] = undo
  end

  local function sublist_key(list, group) return READY .. ':' .. list .. ':' .. group end
  local function ring_key(list) return GROUPS .. ':ring:' .. list end
  local function permits_key(queue, group) return PERMITS .. ':' .. queue .. '\0' .. group end
  local function holds_key(queue) return GROUPS .. ':hold:' .. queue end

  local function write_field(field, before, after)
    undo_with(function(attempt)
      if before then attempt('HSET', GROUPS, field, before) else attempt('HDEL', GROUPS, field) end
    end)
    if after then call('HSET', GROUPS, field, after) else call('HDEL', GROUPS, field) end
  end

  -- The same for several fields.
  local function write_fields(fields, before, after)
    undo_with(function(attempt)
      for i, field in ipairs(fields) do
        if before[i] then attempt('HSET', GROUPS, field, before[i]) else attempt('HDEL', GROUPS, field) end
      end
    end)
    local rows, gone = {}, {}
    for i, field in ipairs(fields) do
      if after[i] then rows[#rows + 1], rows[#rows + 2] = field, after[i] else gone[#gone + 1] = field end
    end
    if #rows > 0 then call('HSET', GROUPS, unpack(rows)) end
    if #gone > 0 then call('HDEL', GROUPS, unpack(gone)) end
  end

  -- Writes the turns of some groups in a list, or removes those whose turn is false. `before` has their turns before. A batch may have many
  -- groups, so this takes two commands at most.
  local function write_turns(list, names, before, after)
    local key, rows, gone = ring_key(list), {}, {}
    undo_with(function(attempt)
      for i, name in ipairs(names) do
        if before[i] then attempt('ZADD', key, before[i], name) else attempt('ZREM', key, name) end
      end
    end)
    for i, name in ipairs(names) do
      if after[i] then rows[#rows + 1], rows[#rows + 2] = after[i], name else gone[#gone + 1] = name end
    end
    if #rows > 0 then call('ZADD', key, unpack(rows)) end
    if #gone > 0 then call('ZREM', key, unpack(gone)) end
  end

  local function write_turn(list, group, before, after) write_turns(list, { group }, { before or false }, { after or false }) end

  -- Returns the turn of a group in a list as a text, or false.
  local function turn_in(list, group)
    local key = ring_key(list)
    return call('ZSCORE', key, group)
  end

  -- Returns some groups of a list, in the order of their turns, each with its turn.
  local function ring_of(list, first, last)
    local key = ring_key(list)
    return call('ZRANGE', key, first, last, 'WITHSCORES')
  end

  -- Returns a turn as a text without rounding it.
  local function turn_text(turn) return string.format('%.0f', turn) end

  -- Returns the lists that may have tasks of a queue.
  local function lists_of(queue)
    lists_of_queue[queue] = lists_of_queue[queue] or call('HGET', ROUTES, 'q' .. queue) or ''
    return lists_of_queue[queue]
  end

  -- Returns the last turn in the rings of a queue. Turns above `MAX_TURN` were never issued.
  local function last_turn_in_rings(queue)
    local last, ids = 0, lists_of(queue)
    for at = 1, #ids, 16 do
      local key = ring_key(sub(ids, at, at + 15))
      last = math.max(last, tonumber(call('ZREVRANGEBYSCORE', key, MAX_TURN, 0, 'WITHSCORES', 'LIMIT', 0, 1)[2] or 0))
    end
    return last
  end

  -- Returns the last turn that was issued. If it is lost, new turns must be behind those in the rings nevertheless.
  local function last_turn(queue)
    return tonumber(call('HGET', GROUPS, 't' .. queue) or '') or last_turn_in_rings(queue)
  end

  -- Returns the turn of the groups that may be served because of this request. They are behind all others.
  local function next_turn(queue)
    if not turns[queue] then
      local last = last_turn(queue)
      turns[queue] = turn_text(last + 1)
      write_field('t' .. queue, turn_text(last), turns[queue])
    end
    return turns[queue]
  end

  local function is_held(queue, group)
    local key = holds_key(queue)
    if has_holds[queue] == nil then has_holds[queue] = call('EXISTS', key) == 1 end
    return has_holds[queue] and call('ZSCORE', key, group) and true or false
  end

  -- Returns how many tasks of a group may start, if only its limit matters.
  local function free_permits(queue, group)
    local max_running = queues().group_settings(queue)
    if max_running == 0 then return math.huge end
    local key = permits_key(queue, group)
    return math.max(max_running - call('SCARD', key), 0)
  end

  -- Returns `true` if a task may start as far as its group is concerned.
  local function may_start(queue, group) return free_permits(queue, group) > 0 and not is_held(queue, group) end

  -- Adds a list to those in which groups have to wait for a turn. Returns `true` if that was not known of some.
  local function add_blocked(list, queue, names)
    local all, fields, before, after = {}, {}, {}, {}
    for i, name in ipairs(names) do all[i] = 'b' .. queue .. '\0' .. name end
    for i, row in ipairs(call('HMGET', GROUPS, unpack(all))) do
      local at = 1
      while row and sub(row, at, at + 15) ~= list and at < #row do at = at + 16 end
      if not row or at > #row then
        fields[#fields + 1], before[#fields + 1], after[#fields + 1] = all[i], row, (row or '') .. list
      end
    end
    if #fields > 0 then write_fields(fields, before, after) end
    return #fields > 0
  end

  -- Takes away the turns of groups in a list.
  local function block(list, queue, names, before)
    if #names == 0 then return end
    local after = {}
    for i = 1, #names do after[i] = 'inf' end
    write_turns(list, names, before, after)
    add_blocked(list, queue, names)
  end

  -- Returns those of the groups whose turns in a list are chosen, and these turns.
  local function with_turns(list, names, choose)
    local key, some, turns_of_some = ring_key(list), {}, {}
    for i, turn in ipairs(call('ZMSCORE', key, unpack(names))) do
      if turn and choose(turn) then some[#some + 1], turns_of_some[#some + 1] = names[i], turn end
    end
    return some, turns_of_some
  end

  -- Returns the groups that may be served again, by list in which they had to wait, and their fields, before the change and after it.
  local function awaited_by_list(queue, names)
    local all, lists_in_order, by_list, fields, rows = {}, {}, {}, {}, {}
    for i, name in ipairs(names) do all[i] = 'b' .. queue .. '\0' .. name end
    for i, row in ipairs(call('HMGET', GROUPS, unpack(all))) do
      if row and may_start(queue, names[i]) then
        fields[#fields + 1], rows[#fields + 1] = all[i], row
        for at = 1, #row, 16 do
          local list = sub(row, at, at + 15)
          if not by_list[list] then by_list[list], lists_in_order[#lists_in_order + 1] = {}, list end
          by_list[list][#by_list[list] + 1] = names[i]
        end
      end
    end
    return lists_in_order, by_list, fields, rows
  end

  -- Gives turns to those of the groups that may be served again, in each list in which they had to wait. Returns `true` if there were any.
  local function unblock(queue, names)
    local lists_in_order, by_list, fields, rows = awaited_by_list(queue, names)
    for _, list in ipairs(lists_in_order) do
      local some, before = with_turns(list, by_list[list], function(turn) return turn == 'inf' end)
      local after = {}
      for i = 1, #some do after[i] = next_turn(queue) end
      if #some > 0 then write_turns(list, some, before, after) end
    end
    if #fields > 0 then write_fields(fields, rows, {}) end
    return #fields > 0
  end

  -- Takes away the turns of groups that may no longer be served, in the lists that workers of the queue read, except for one list. If such
  -- a group still has a turn in a list that no worker reads, a later claim from that list takes it away.
  local function block_everywhere(queue, names, except)
    if #names == 0 then return end
    local ids = lists_of(queue)
    for at = 1, #ids, 16 do
      local list = sub(ids, at, at + 15)
      if list ~= except then
        local some, before = with_turns(list, names, function(turn) return turn ~= 'inf' end)
        block(list, queue, some, before)
      end
    end
  end

  -- Gives turns to those of the groups that may be served, and takes away those of the others. Returns `true` if some had to wait although
  -- they could be served.
  local function update(queue, names)
    local full = {}
    for _, name in ipairs(names) do
      if not may_start(queue, name) then full[#full + 1] = name end
    end
    local is_any = unblock(queue, names)
    block_everywhere(queue, full)
    return is_any
  end

  -- Changes the number of entries in the sublists of a list.
  local function add_entries(list, n)
    local before = call('HGET', GROUPS, 'n' .. list)
    local after = math.max((tonumber(before or '') or 0) + n, 0)
    write_field('n' .. list, before, after > 0 and turn_text(after) or nil)
  end

  local function entries_in(list) return tonumber(call('HGET', GROUPS, 'n' .. list) or '') or 0 end

  -- Returns `true` unless it is known that no list has entries of cancelled or replaced tasks. Not every script has read their number.
  local function may_have_tombstones()
    if tombstones_text == nil then tombstones_text = meta[5] end
    if tombstones_text == nil then tombstones_text = call('HGET', META, 'tombstones') end
    return tombstones_text ~= '0'
  end

  -- Returns the tombstones of the entries of a group, with one command, as numbers by id. `known` has those that were read before.
  local function add_tombstones(ids, known)
    for i, row in ipairs(call('HMGET', TOMBSTONES, unpack(ids))) do known[ids[i]] = known[ids[i]] or tonumber(row or '') or 0 end
  end

  -- Returns `true` if a sublist is known to have only entries of cancelled or replaced tasks. A script reads a limited number of entries.
  local function has_only_tombstones(key, group)
    local left, from, n = {}, 0, 2
    while looks_left > 0 do
      local entries, ids = call('LRANGE', key, from, from + n - 1), {}
      looks_left = looks_left - #entries
      for i, entry in ipairs(entries) do ids[i] = sub(entry, 1, ENTRY_ID_END) .. sub(entry, ENTRY_KIND, ENTRY_KIND_END) .. group end
      if #ids > 0 then add_tombstones(ids, left) end
      for _, id in ipairs(ids) do
        if left[id] == 0 then return false end
        left[id] = left[id] - 1
      end
      if #entries < n then return true end
      from, n = from + n, math.min(2 * n, 64)
    end
    return false
  end

  -- Reads the turn of the group of a bundle, and whether the group counts as new in the list: only cancelled or replaced tasks are left.
  -- A script that replaces tasks reads this before, so that a group that has tasks before and after it keeps its turn.
  local function read_turn(bundle)
    local before = turn_in(bundle.list, bundle.group)
    bundle.turn_before = before
    bundle.is_new = not before or before ~= 'inf' and may_have_tombstones() and has_only_tombstones(bundle.key, bundle.group)
  end

  -- Counts the entries of bundles that have been pushed.
  local function count_pushed(bundles)
    local counts = {}
    for _, it in ipairs(bundles) do
      if it.group then counts[it.list] = (counts[it.list] or 0) + #it.entries end
    end
    for list, n in pairs(counts) do add_entries(list, n) end
  end

  -- Returns the turn of a group that is new in a list: the first one that it has in the lists which drain into this one, or nil. A list in
  -- which the group has only cancelled or replaced tasks does not count.
  local function turn_before(list, group, path)
    local first = nil
    for at = 1, #(path or ''), 16 do
      local other = sub(path, at, at + 15)
      if other == list then break end
      local turn = turn_in(other, group)
      local is_first = turn and turn ~= 'inf' and (not first or tonumber(turn) < tonumber(first))
      if is_first and not (may_have_tombstones() and has_only_tombstones(sublist_key(other, group), group)) then first = turn end
    end
    return first
  end

  -- Pushes entries into a sublist. `count_pushed` must follow.
  local function push(command, bundle)
    local list, queue, group, key = bundle.list, bundle.queue, bundle.group, bundle.key
    queues().mark_grouped(queue, undo_with)
    if bundle.is_new == nil then read_turn(bundle) end
    local before = bundle.turn_before
    bundle.before = call('LLEN', key)
    call(command, key, unpack(bundle.entries))
    bundle.is_pushed = true
    if not bundle.is_new then return end
    if may_start(queue, group) then write_turn(list, group, before, turn_before(list, group, bundle.path) or next_turn(queue))
    else block(list, queue, { group }, { before }) end
  end

  -- Removes groups without a sublist, and writes the turns of those that were served, in this order.
  local function write_served(list, queue, sublists)
    local names, before, after, full, blocked, blocked_before = {}, {}, {}, {}, {}, {}
    local first = last_turn(queue)
    local last = first
    for _, sublist in ipairs(sublists) do
      if sublist.permits <= 0 then full[#full + 1] = sublist.group end
      if sublist.has_rest and sublist.permits <= 0 then
        blocked[#blocked + 1], blocked_before[#blocked + 1] = sublist.group, sublist.turn
      elseif sublist.is_served or not sublist.has_rest then
        if sublist.has_rest then last = last + 1 end
        names[#names + 1], before[#names + 1], after[#names + 1] = sublist.group, sublist.turn, sublist.has_rest and turn_text(last)
      end
    end
    if #names > 0 then write_turns(list, names, before, after) end
    block(list, queue, blocked, blocked_before)
    block_everywhere(queue, full, list)
    if last > first then write_field('t' .. queue, turn_text(first), turn_text(last)) end
  end

  -- Holds a group until a time. This replaces an earlier hold.
  local function hold(queue, group, till)
    local key = holds_key(queue)
    local before = call('ZSCORE', key, group)
    undo_with(function(attempt)
      if before then attempt('ZADD', key, before, group) else attempt('ZREM', key, group) end
    end)
    call('ZADD', key, till, group)
    has_holds[queue] = true
    block_everywhere(queue, { group })
  end

  -- Ends the holds of a queue whose time is over, as a transaction.
  local function end_holds(queue)
    local key = holds_key(queue)
    local over = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MAX_BATCH)
    if #over == 0 then return end
    local names = {}
    state.transaction = { undo = 'nothing' }
    for i = 1, #over, 2 do
      local group, before = over[i], over[i + 1]
      undo_with(function(attempt) attempt('ZADD', key, before, group) end)
      call('ZREM', key, group)
      names[#names + 1] = group
    end
    unblock(queue, names)
    state.transaction = nil
  end

  -- Returns the milliseconds until the first hold of a queue is over, or nil.
  local function hold_wait(queue)
    local key = holds_key(queue)
    local till = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    return till and math.max(tonumber(till) - now, 0)
  end

  made_groups = {
    sublist_key = sublist_key, ring_key = ring_key, turn_in = turn_in, ring_of = ring_of, permits_key = permits_key, free_permits = free_permits, is_held = is_held, may_start = may_start,
    unblock = unblock, update = update, add_blocked = add_blocked, mark = function(queue) queues().mark_grouped(queue, undo_with) end, read_turn = read_turn, push = push, count_pushed = count_pushed, add_entries = add_entries, entries_in = entries_in, write_served = write_served,
    write_turn = write_turn, last_turn = last_turn, next_turn = next_turn, hold = hold, end_holds = end_holds, hold_wait = hold_wait,
  }
  return made_groups
end
