-- Replaces the payloads of tasks that hold keys, and that no worker has claimed.
--
-- Needs: entry, alive_row, intact_entry, lists.
--
-- ARGV[10..] -> the tasks: see `add_tasks.lua`. If a task replaces the payload of another one in the same request, this part changes the
--   arguments of both, before `add_tasks.lua` uses them
--
-- Returns: the function `replacements_of`.

-- Returns the replacements of a request, which has these ids, arguments and numbers of tasks. `own` has the positions of its tasks
-- that hold keys, by key, and `change` changes the row of a key.
local function replacements_of(ids, is_stored, first_entry, tasks, own, change)
  local first_delay = first_entry + tasks.waiting + tasks.delayed
  local first_payload = first_delay + tasks.delayed
  -- The tasks that were stored before, in order and by id. Functions that write and undo. Ids of unused payloads.
  local stored, writes, undos, unused_payloads = {}, {}, {}, {}
  local result = { alive = {}, delayed = {}, dues = {}, payloads = {}, entries = {} }
  -- The number of entries that become tombstones.
  local new_tombstones = 0

  local function append(to, more)
    if #more == 0 then return to end
    to = to or {}
    for i = 1, #more do to[#to + 1] = more[i] end
    return to
  end

  -- Inserts the entries of replaced tasks that are ready now. Each goes before the first new task that follows its spawn in the request.
  local function insert_entries(entries, more)
    table.sort(more, function(a, b) return a.at < b.at or a.at == b.at and a.nth < b.nth end)
    local before, index = 0, 1
    for i, it in ipairs(more) do
      while index < it.at do
        if not is_stored[index] then before = before + 1 end
        index = index + 1
      end
      table.insert(entries, before + i, it.entry)
    end
  end

  -- Returns the position of the argument with the id before the payload of a task, or nil if the entry contains the payload.
  local function payload_argument(id)
    for i = first_payload, first_payload + 2 * tasks.payloads - 1, 2 do
      if ARGV[i] == id then return i end
    end
  end

  -- Returns `entry` with the payload of `new`. `due` is the time at which it becomes ready, in 6 bytes.
  local function with_payload(entry, new, due, kinds)
    local _, mode = task_key(entry, 0)
    local from = 1 + 8 * math.floor(mode / 16)
    local name_at = ENTRY_PAYLOAD + extension_length(new)
    return sub(entry, 1, ENTRY_READY_AT - 1) .. due .. sub(kinds, from, from + 7) .. sub(new, ENTRY_FLAGS, ENTRY_PAYLOAD - 1)
      .. sub(entry, ENTRY_PAYLOAD, ENTRY_PAYLOAD + extension_length(entry) - 1) .. sub(new, name_at)
  end

  -- Replaces the payload of a task of the same request. Both become one task, at the position of one of them.
  local function replace_own(task)
    local old, new = own[task.key], task.index
    local entry = with_payload(ARGV[first_entry + old - 1], ARGV[first_entry + new - 1], pack('>I6', task.due), task.kinds)
    local is_waiting = task.due <= now
    local slot = is_waiting == (old <= tasks.waiting) and old or new
    local old_payload, new_payload = payload_argument(task.holder), payload_argument(ids[new])
    if old_payload then ARGV[old_payload] = '' end
    if new_payload then ARGV[new_payload] = task.holder end
    is_stored[old], is_stored[new] = true, true
    is_stored[slot] = nil
    ids[slot], ARGV[8 + 2 * slot], ARGV[9 + 2 * slot], ARGV[first_entry + slot - 1] = task.holder, task.holder, alive_row(entry, 0), entry
    if not is_waiting then ARGV[first_delay + slot - tasks.waiting - 1] = string.format('%.0f', task.due - now) end
    own[task.key] = slot
    change(task.key, sub(task.row, 1, HELD_SINCE_END) .. entry)
    return true
  end

  -- Returns the list of an entry and its index there. If the list has equal entries, only the last is valid: claims skip the others.
  local function place_of(entry)
    local path, group = lists().path_of(sub(entry, ENTRY_KIND, ENTRY_KIND_END)), lists().group_of(entry)
    for from = 1, #path, 16 do
      local list = sub(path, from, from + 15)
      local key = group == '' and key_of(list) or groups().sublist_key(list, group)
      local index = call('LPOS', key, entry, 'RANK', -1)
      if index then return key, index end
    end
  end

  -- Makes claims skip an entry in a list, by a tombstone.
  local function add_tombstone(entry)
    local tombstone = lists().tombstone_of(entry)
    local found = call('HGET', TOMBSTONES, tombstone)
    found = found and (tonumber(found) or 1) or 0
    new_tombstones = new_tombstones + 1
    writes[#writes + 1] = function() call('HSET', TOMBSTONES, tombstone, found + 1) end
    undos[#undos + 1] = function(try)
      if found > 0 then try('HSET', TOMBSTONES, tombstone, found) else try('HDEL', TOMBSTONES, tombstone) end
    end
  end

  -- Writes the number of tombstones once, as an absolute number, so that the undo is right whether or not the write took effect.
  local function write_tombstones()
    if new_tombstones == 0 then return end
    local before = tonumber(call('HGET', META, 'tombstones') or '') or call('HLEN', TOMBSTONES)
    writes[#writes + 1] = function() call('HSET', META, 'tombstones', before + new_tombstones) end
    undos[#undos + 1] = function(try) try('HSET', META, 'tombstones', before) end
  end

  -- Returns the entry of a task, and `true` if it is readable and has this key. The entry of a delayed task is in `delayed`. For a
  -- waiting task, this is the copy in the row of the key, which may be damaged, so `place_of` looks for an equal entry in the list.
  local function entry_of(id, key, row, due)
    local entry = due and call('HGET', DELAYED, id) or sub(row, HELD_ENTRY)
    if not is_intact(id, entry) then return entry, false end
    local found, mode = task_key(entry, 0)
    return entry, found == key and mode < 48
  end

  -- Returns a task that waits or is delayed, and that may be replaced, or nil if its entry cannot be found.
  local function find_stored(id, key, row)
    if stored[id] then return stored[id] end
    local it = { id = id, due = call('ZSCORE', DUE, id), alive = call('HGET', ALIVE, id) }
    local is_sound
    it.entry, is_sound = entry_of(id, key, row, it.due)
    if not is_sound then return nil end
    if not it.due then it.key, it.index = place_of(it.entry) end
    if not it.due and not it.key then return nil end
    it.is_waiting, it.new = not it.due, it.entry
    stored[#stored + 1], stored[id] = it, it
    return it
  end

  -- Replaces the payload of a stored task. Returns `false` if its entry cannot be found. Several tasks of the request may replace the
  -- same payload in turn, so the result is written once, at the end.
  local function replace_stored(task)
    local it = find_stored(task.holder, task.key, task.row)
    if not it then return false end
    local is_waiting = task.due <= now
    -- A task that was ready keeps its ready time. Otherwise, its list would seem to have waited less, and would be served too late.
    local ready_at = is_waiting and it.is_waiting and sub(it.new, ENTRY_READY_AT, ENTRY_KIND - 1) or pack('>I6', task.due)
    local new = with_payload(it.entry, ARGV[first_entry + task.index - 1], ready_at, task.kinds)
    local has_kind = sub(new, ENTRY_KIND, ENTRY_KIND_END) == sub(it.new, ENTRY_KIND, ENTRY_KIND_END)
    local is_appended = is_waiting and not (it.is_waiting and has_kind)
    if is_appended and not (it.is_waiting and it.at) then it.at, it.nth = task.at, task.nth end
    it.has_moved = it.has_moved or not is_waiting or not it.is_waiting or not has_kind
    it.is_waiting, it.new, it.new_due, it.payload = is_waiting, new, task.due, payload_argument(ids[task.index])
    change(task.key, sub(task.row, 1, HELD_SINCE_END) .. new)
    return true
  end

  -- Overwrites the entry of a replaced task in its list.
  local function write_in_place(it)
    local key = it.key
    writes[#writes + 1] = function() call('LSET', key, it.index, it.new) end
    undos[#undos + 1] = function(try)
      if try('LINDEX', key, it.index) == it.new then try('LSET', key, it.index, it.entry) end
    end
  end

  -- Removes a replaced task from its place.
  local function take_out(it)
    if not it.due then return add_tombstone(it.entry) end
    undos[#undos + 1] = function(try)
      try('HSET', DELAYED, it.id, it.entry)
      try('ZADD', DUE, it.due, it.id)
    end
    if not it.is_waiting then return end
    writes[#writes + 1] = function()
      call('ZREM', DUE, it.id)
      call('HDEL', DELAYED, it.id)
    end
  end

  -- Replaces a payload outside of the entry. If the new one is in the entry, the old one is removed last, when nothing can fail any
  -- more, so it need not be read for the undo.
  local function write_payload(it)
    local was_apart = byte(it.entry, ENTRY_FLAGS) % 2 == 0
    if not it.payload then
      if was_apart then unused_payloads[#unused_payloads + 1] = it.id end
      return
    end
    append(result.payloads, { it.id, ARGV[it.payload + 1] })
    local before_payload = was_apart and call('HGET', PAYLOADS, it.id)
    undos[#undos + 1] = function(try)
      if before_payload then try('HSET', PAYLOADS, it.id, before_payload) else try('HDEL', PAYLOADS, it.id) end
    end
  end

  local function write_replaced(it)
    undos[#undos + 1] = function(try) try('HSET', ALIVE, it.id, it.alive) end
    if not it.has_moved then
      write_in_place(it)
    else
      take_out(it)
      if it.is_waiting then
        result.entries[#result.entries + 1] = { at = it.at, nth = it.nth, entry = it.new }
      else
        append(result.delayed, { it.id, it.new })
        append(result.dues, { it.new_due, it.id })
      end
    end
    append(result.alive, { it.id, alive_row(it.new, 0) })
    write_payload(it)
  end

  local nth = 0
  function result.replace(task)
    nth = nth + 1
    local delay = task.index > tasks.waiting and tonumber(ARGV[first_delay + task.index - tasks.waiting - 1]) or 0
    task.due, task.nth = math.min(now + delay, number_at('>I6', task.row, HELD_SINCE) + task.limit), nth
    -- If a delayed task becomes ready at once, it goes after the waiting tasks with keys that precede it in the request.
    task.at = task.index <= tasks.waiting and task.index or task.last + 1
    return (own[task.key] and replace_own or replace_stored)(task)
  end

  -- Determines what is to be written, after the last replacement.
  function result.finish()
    for _, it in ipairs(stored) do write_replaced(it) end
    write_tombstones()
    return result
  end

  -- Adds the replaced tasks to what is written for new ones.
  function result.merge(alive, entries, delayed, dues, payloads)
    insert_entries(entries, result.entries)
    return append(alive, result.alive), append(delayed, result.delayed), append(dues, result.dues), append(payloads, result.payloads)
  end

  function result.write()
    for _, write in ipairs(writes) do write() end
  end

  function result.restore(try)
    for i = #undos, 1, -1 do undos[i](try) end
  end

  -- Removes payloads that are now in entries.
  function result.clean_up()
    if #unused_payloads > 0 then call('HDEL', PAYLOADS, unpack(unused_payloads)) end
  end

  return result
end

return replacements_of
