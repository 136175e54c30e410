-- Resolves the conflicts between new tasks and the tasks that hold their keys. A new task whose key is held is not stored, but it
-- may replace the payload of the task that holds the key.
--
-- The arguments of `enqueue` for each task with a key:
--
-- [1] -> its position in the arguments, where waiting tasks precede delayed ones
-- [2] -> its position in the request
-- [3] -> key
-- [4] -> window in milliseconds
-- [5] -> what it does if another task holds the key: `j` joins that task; `r` is rejected; `p` replaces the payload of that task,
--   or joins it if it was claimed
-- [6] -> limit for the delay of a replaced task, in milliseconds since it was stored; empty if there is none
-- [7] -> kinds of the task with the priorities high, normal and low, of 8 bytes each
--
-- Needs: entry, intact_entry, lists, store_time, held_keys.

-- Returns what is to be written for tasks with keys. `is_stored` records those that are not stored.
local function resolve_conflicts(ids, is_stored, waiting_count, delayed_count, payload_count)
  local KEY_ARGUMENTS = 7

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

  local total = waiting_count + delayed_count
  local first_entry, first_delay = 10 + 2 * total, 10 + 3 * total
  local first_payload = first_delay + delayed_count
  local at = first_payload + 2 * payload_count + 2 * tonumber(ARGV[8])
  local result = { any = false, answer = '', alive = {}, delayed = {}, dues = {}, payloads = {}, entries = {} }
  -- Rows of keys, as read or changed; keys that change; their previous rows; functions that write and undo; ids of unused payloads.
  local rows, changed, before, writes, undos, unused_payloads = {}, {}, {}, {}, {}, {}
  -- Positions of the tasks of this request that hold keys, by id; the keys of these; the stored tasks that are replaced, by id.
  local own, is_own, pending = {}, {}, {}
  -- The number of entries that become tombstones.
  local new_tombstones = 0

  local function row_of(key)
    if rows[key] == nil then
      rows[key] = call('HGET', HELD_KEYS, key)
      before[key] = rows[key]
    end
    return rows[key]
  end

  local function change(key, row)
    if not changed[key] then changed[#changed + 1], changed[key] = key, true end
    rows[key] = row
  end

  -- Returns the position of the argument with the id before the payload of a task, or nil if the entry contains the payload.
  local function payload_argument(id)
    for i = first_payload, first_payload + 2 * payload_count - 1, 2 do
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
  local function replace_own(task, holder, row)
    local old, new = own[holder], task.index
    local entry = with_payload(ARGV[first_entry + old - 1], ARGV[first_entry + new - 1], pack('>I6', task.due), task.kinds)
    local is_waiting = task.due <= now
    local slot = is_waiting == (old <= waiting_count) and old or new
    local old_payload, new_payload = payload_argument(holder), payload_argument(ids[new])
    if old_payload then ARGV[old_payload] = '' end
    if new_payload then ARGV[new_payload] = holder end
    is_stored[old], is_stored[new] = true, true
    is_stored[slot] = nil
    ids[slot], ARGV[8 + 2 * slot], ARGV[9 + 2 * slot], ARGV[first_entry + slot - 1] = holder, holder, alive_row(entry), entry
    if not is_waiting then ARGV[first_delay + slot - waiting_count - 1] = string.format('%.0f', task.due - now) end
    own[holder] = slot
    change(task.key, sub(row, 1, HELD_MODE) .. entry)
  end

  -- Returns the list of an entry and its index there. If the list has equal entries, only the last is valid: claims skip the others.
  local function place_of(entry)
    local path = lists().path_of(sub(entry, ENTRY_KIND, ENTRY_KIND_END))
    for from = 1, #path, 16 do
      local key = key_of(sub(path, from, from + 15))
      local index = call('LPOS', key, entry, 'RANK', -1)
      if index then return key, index end
    end
  end

  -- Makes claims skip an entry in a list, by a tombstone.
  local function add_tombstone(entry)
    local tombstone = sub(entry, 1, ENTRY_ID_END) .. sub(entry, ENTRY_KIND, ENTRY_KIND_END)
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
    local before = tonumber(meta[5]) or call('HLEN', TOMBSTONES)
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
    if pending[id] then return pending[id] end
    local it = { id = id, due = call('ZSCORE', DUE, id), alive = call('HGET', ALIVE, id) }
    local is_sound
    it.entry, is_sound = entry_of(id, key, row, it.due)
    if not is_sound then return nil end
    if not it.due then it.key, it.index = place_of(it.entry) end
    if not it.due and not it.key then return nil end
    it.is_waiting, it.new = not it.due, it.entry
    pending[#pending + 1], pending[id] = it, it
    return it
  end

  -- Replaces the payload of a stored task. Returns `false` if its entry cannot be found. Several tasks of the request may replace the
  -- same payload in turn, so the result is written once, at the end.
  local function replace_stored(task, holder, row)
    local it = find_stored(holder, task.key, row)
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
    change(task.key, sub(row, 1, HELD_MODE) .. new)
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
    append(result.alive, { it.id, alive_row(it.new) })
    write_payload(it)
  end

  local function resolve(task)
    local row, conflict = row_of(task.key), task.conflict
    local holder, is_unclaimed
    if is_own[task.key] then holder, is_unclaimed = sub(row, 1, HELD_ID_END), true
    else holder, is_unclaimed = holder_of(task.key, row) end
    if not holder then
      local entry = ARGV[first_entry + task.index - 1]
      local _, mode = task_key(entry, 0)
      if is_stored[task.index] then return end
      own[ids[task.index]], is_own[task.key] = task.index, true
      local until_at = task.window > 0 and now + task.window or 0
      return change(task.key, ids[task.index] .. pack('>I6I6', until_at, now) .. char(mode % 2) .. entry)
    end
    result.any = true
    if conflict == 'p' then
      if task.latest then task.due = math.min(task.due, number_at('>I6', row, HELD_SINCE) + task.latest) end
      local replace = is_own[task.key] and replace_own or replace_stored
      if not is_unclaimed or replace(task, holder, row) == false then conflict = 'j' end
    end
    if own[holder] ~= task.index then is_stored[task.index] = true end
    result.answer = result.answer .. pack('>I2', task.position) .. conflict .. holder
  end

  -- If a delayed task becomes ready at once, it goes after the waiting tasks with keys that precede it in the request.
  local last = 0
  for i = 1, tonumber(ARGV[9]) do
    local index = tonumber(ARGV[at])
    if index <= waiting_count then last = math.max(last, index) end
    local delay = index > waiting_count and tonumber(ARGV[first_delay + index - waiting_count - 1]) or 0
    resolve({
      index = index, position = tonumber(ARGV[at + 1]), key = ARGV[at + 2], window = tonumber(ARGV[at + 3]), conflict = ARGV[at + 4],
      latest = tonumber(ARGV[at + 5]), kinds = ARGV[at + 6], due = now + delay, nth = i, at = index <= waiting_count and index or last + 1,
    })
    at = at + KEY_ARGUMENTS
  end

  for _, it in ipairs(pending) do write_replaced(it) end
  write_tombstones()

  -- Adds the replaced tasks to what is written for new ones.
  function result.merge(alive, entries, delayed, dues, payloads)
    insert_entries(entries, result.entries)
    return append(alive, result.alive), append(delayed, result.delayed), append(dues, result.dues), append(payloads, result.payloads)
  end

  function result.write()
    for _, write in ipairs(writes) do write() end
    for _, key in ipairs(changed) do call('HSET', HELD_KEYS, key, rows[key]) end
  end

  -- Undoes the changes. The new tasks have been removed before.
  function result.restore(try)
    for i = #undos, 1, -1 do undos[i](try) end
    for _, key in ipairs(changed) do
      if before[key] then try('HSET', HELD_KEYS, key, before[key]) else try('HDEL', HELD_KEYS, key) end
    end
  end

  -- Removes payloads that are now in entries.
  function result.clean_up()
    if #unused_payloads > 0 then call('HDEL', PAYLOADS, unpack(unused_payloads)) end
  end

  return result
end

return resolve_conflicts
