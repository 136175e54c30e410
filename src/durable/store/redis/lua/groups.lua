-- Groups of tasks within named queues, which take turns. See `queue/group.rs` for their settings.
--
-- Tasks of a group wait in *sublists*: `ready:<list>:<group>` is the sublist of a group in a list. The sorted set `groups:ring:<list>` has the
-- groups with a sublist, even if there are only cancelled tasks in it. The score is the turn of the group: a number if a task may start as far as
-- the group is concerned, that is if the group is not held and has a permit, and otherwise `inf`. The group with the lowest number is
-- the next to be served. Groups with the same number are in the order of their names.
--
-- A running task of a group holds a permit: its id is in the set `permits:<queue>\0<group>`. The sorted set `groups:hold:<queue>` has the
-- groups that are held, by the time at which their hold is over.
--
-- Fields of `groups`:
--
-- n<list>            -> number of entries in the sublists of a list
-- b<queue>\0<group>  -> lists in which the turn of a group is `inf`, 16 bytes each
-- t<queue>           -> last turn that was issued
--
-- Each write is undone with the transaction in which it happens: see `undo_with`.
--
-- Needs: queues.
local made_groups
function groups()
  if made_groups then return made_groups end
  local turns, tombstones_text = {}, nil

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

  -- Writes the turn of a group in a list, or removes the group. `before` is its turn before, or false.
  local function write_turn(list, group, before, after)
    local key = ring_key(list)
    undo_with(function(attempt)
      if before then attempt('ZADD', key, before, group) else attempt('ZREM', key, group) end
    end)
    if after then call('ZADD', key, after, group) else call('ZREM', key, group) end
  end

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

  -- Returns a text of a turn that is exact.
  local function turn_text(turn) return string.format('%.0f', turn) end

  local function last_turn(queue) return tonumber(call('HGET', GROUPS, 't' .. queue) or '') or 0 end

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
    return call('ZSCORE', key, group) and true or false
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

  -- Adds a list to those in which a group has to wait for a turn.
  local function add_blocked(list, queue, group)
    local field = 'b' .. queue .. '\0' .. group
    local before = call('HGET', GROUPS, field)
    for at = 1, #(before or ''), 16 do if sub(before, at, at + 15) == list then return end end
    write_field(field, before, (before or '') .. list)
  end

  local function block(list, queue, group, before)
    write_turn(list, group, before, 'inf')
    add_blocked(list, queue, group)
  end

  -- Has a group that may be served again take turns in each list in which it had to wait.
  local function unblock(queue, group)
    local field = 'b' .. queue .. '\0' .. group
    local blocked = call('HGET', GROUPS, field)
    if not blocked or not may_start(queue, group) then return end
    for at = 1, #blocked, 16 do
      local list = sub(blocked, at, at + 15)
      local before = turn_in(list, group)
      if before == 'inf' then write_turn(list, group, before, next_turn(queue)) end
    end
    write_field(field, blocked, nil)
  end

  -- Takes the turns of a group away that may not be served any more, in the lists that workers of the queue read. If it has a turn in
  -- another list, a claim finds out.
  local function block_everywhere(queue, group)
    local lists = call('HGET', ROUTES, 'q' .. queue) or ''
    for at = 1, #lists, 16 do
      local list = sub(lists, at, at + 15)
      local before = turn_in(list, group)
      if before and before ~= 'inf' then block(list, queue, group, before) end
    end
  end

  -- Has a group take turns if and only if it may be served.
  local function update(queue, group)
    if may_start(queue, group) then unblock(queue, group) else block_everywhere(queue, group) end
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

  -- Returns `true` if a sublist has only entries of cancelled or replaced tasks.
  local function has_only_tombstones(key, group)
    local left = {}
    for from = 0, 4 * MAX_BATCH - 1, 16 do
      local entries = call('LRANGE', key, from, from + 15)
      for _, entry in ipairs(entries) do
        local tombstone = sub(entry, 1, ENTRY_ID_END) .. sub(entry, ENTRY_KIND, ENTRY_KIND_END) .. group
        left[tombstone] = left[tombstone] or tonumber(call('HGET', TOMBSTONES, tombstone) or '') or 0
        if left[tombstone] == 0 then return false end
        left[tombstone] = left[tombstone] - 1
      end
      if #entries < 16 then return true end
    end
    return true
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

  -- Returns the turn of a group that is new in a list: the first one that it has in the lists which drain into this one, or nil.
  local function turn_before(list, group, path)
    local first = nil
    for at = 1, #(path or ''), 16 do
      local other = sub(path, at, at + 15)
      if other == list then break end
      local turn = turn_in(other, group)
      if turn and turn ~= 'inf' and (not first or tonumber(turn) < tonumber(first)) then first = turn end
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
    else block(list, queue, group, before) end
  end

  -- Removes groups without a sublist, and writes the turns of those that were served, in this order.
  local function write_served(list, queue, sublists)
    local last, before = nil, nil
    for _, sublist in ipairs(sublists) do
      if not sublist.has_rest then write_turn(list, sublist.group, sublist.turn, nil)
      elseif sublist.permits <= 0 then block(list, queue, sublist.group, sublist.turn)
      elseif sublist.is_served then
        if not last then
          before = last_turn(queue)
          last = before
        end
        last = last + 1
        write_turn(list, sublist.group, sublist.turn, turn_text(last))
      end
      if sublist.permits <= 0 then block_everywhere(queue, sublist.group) end
    end
    if last then write_field('t' .. queue, turn_text(before), turn_text(last)) end
  end

  -- Holds a group until a time. This replaces an earlier hold.
  local function hold(queue, group, till)
    local key = holds_key(queue)
    local before = call('ZSCORE', key, group)
    undo_with(function(attempt)
      if before then attempt('ZADD', key, before, group) else attempt('ZREM', key, group) end
    end)
    call('ZADD', key, till, group)
    block_everywhere(queue, group)
  end

  -- Ends the holds of a queue whose time is over, as a transaction.
  local function end_holds(queue)
    local key = holds_key(queue)
    local over = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MAX_BATCH)
    if #over == 0 then return end
    state.transaction = { undo = 'nothing' }
    for i = 1, #over, 2 do
      local group, before = over[i], over[i + 1]
      undo_with(function(attempt) attempt('ZADD', key, before, group) end)
      call('ZREM', key, group)
      unblock(queue, group)
    end
    state.transaction = nil
  end

  -- Returns the milliseconds until the first hold of a queue is over, or nil.
  local function hold_wait(queue)
    local key = holds_key(queue)
    local till = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    return till and math.max(tonumber(till) - now, 0)
  end

  made_groups = {
    sublist_key = sublist_key, ring_key = ring_key, turn_in = turn_in, ring_of = ring_of, permits_key = permits_key, free_permits = free_permits, is_held = is_held,
    unblock = unblock, update = update, add_blocked = add_blocked, mark = function(queue) queues().mark_grouped(queue, undo_with) end, read_turn = read_turn, push = push, count_pushed = count_pushed, add_entries = add_entries, entries_in = entries_in, write_served = write_served,
    write_turn = write_turn, next_turn = next_turn, hold = hold, end_holds = end_holds, hold_wait = hold_wait,
  }
  return made_groups
end
