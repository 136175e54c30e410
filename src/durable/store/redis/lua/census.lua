-- The census finds tasks that are in no list, and rows that no script would reach again.
--
-- A task that has not ended is waiting in a list, delayed, or running. So `alive` has as many rows as the lists (without
-- tombstones), `due` and `running` have together. Each pass of maintenance compares these numbers, and reads a page of
-- `running`. If they differ, a census begins. If the server may evict keys, each pass begins one. A census proceeds in pages,
-- and any client that maintains the store takes the next page. Its steps:
--
-- 1 clear: removes unlisted ids that an earlier census has left.
-- 2 kinds: finds lists of kinds that no route names. If the numbers agree once these lists are counted, and there are no
--   strays, the census ends here.
-- 3 strays: drains lists that no route names and no worker reads, because routes were lost.
-- 4 running, 5 delayed: restore missing rows of `alive` and `held_keys` from the entries. Step 4 also restores `claims` and `lease`.
-- 6 tombstones, 7 alive: tombstones, and tasks that are neither running nor delayed, become unlisted.
-- 8 lists: reads all lists. A task that is in a list is no longer unlisted. It restores `alive` and `held_keys`, too.
-- 9 unlisted: ends the tasks that are still unlisted.
--
-- A task that is not lost is never ended: while `meta` has the field `census`, each script that adds an entry to a list
-- removes its task from the unlisted ones (`mark_listed` in `lists.lua`). So a task that is still unlisted has been added to
-- no list since it became unlisted. If it is in a list at the end, it has been there all the time, and step 8 has read it: lists are read
-- from their ends to their heads, by the number of entries behind, and that number never falls for an entry that stays.
-- (Entries that a claim passes over are added again.) The last step looks for the task in `running` and `due` in the script
-- that ends it.
--
-- Fields of `meta`: `census`, which exists during a census; `progress`, its step, cursor and lists; `survey`, the result of
-- the last census: by how much the numbers still differed, and the lists that no route names.
--
-- Needs: transaction, entry, alive_row, alive_tail, intact_entry, lists, outcomes, repair, group_repair, restore_keys.
-- On demand: drain.
-- Defines: take_census.

-- The lease of a claim whose owner is lost, in milliseconds, and the number of shared lists that are searched for strays.
local LOST_LEASE, SHARED_LISTS = 10000, 1024
local NOBODY = string.rep('\0', 8)

local function make_census(page)
  local outcomes = make_outcomes()

  local function unpacked(row)
    local is_read, value = pcall(cmsgpack.unpack, row or '')
    return is_read and type(value) == 'table' and value or {}
  end

  -- Returns the progress of a census, or an empty table if it is unreadable.
  local function progress_of(row)
    local p = unpacked(row)
    local is_whole = type(p.lists) == 'string' and type(p.at) == 'number' and type(p.offset) == 'number'
    return is_whole and type(p.cursor) == 'string' and string.find(p.cursor, '^%d+$') and p or {}
  end

  -- Returns the result of the last census: the difference of the numbers, and the lists that no route named.
  local function survey_of(row)
    local survey = unpacked(row)
    return type(survey.left) == 'number' and survey.left or 0, type(survey.lists) == 'string' and survey.lists or ''
  end

  -- Adds a list to a string of lists, unless the string contains it. Returns the string, and `true` if it was added.
  local function with_list(text, list)
    for at = 1, #text, 16 do
      if sub(text, at, at + 15) == list then return text, false end
    end
    return text .. list, true
  end

  -- Returns the lists that routes name, and these others. Maintenance has checked only the keys of the former.
  local function all_lists(others)
    local text = ''
    for _, field in ipairs(call('HKEYS', ROUTES)) do
      if sub(field, 1, 1) == 'l' and #field == 17 then text = with_list(text, sub(field, 2)) end
    end
    for at = 1, #others, 16 do
      local key = key_of(sub(others, at, at + 15))
      remove_other_type('LLEN', key)
      text = with_list(text, sub(others, at, at + 15))
    end
    return text
  end

  -- Returns the number of live tasks that are in no list, not delayed and not running. It is negative if there are more
  -- entries than live tasks.
  local function missing_tasks(text)
    local tombstones = tonumber(call('HGET', META, 'tombstones') or '0') or 0
    local n = call('HLEN', ALIVE) - call('HLEN', RUNNING) - call('ZCARD', DUE) + tombstones
    for at = 1, #text, 16 do
      local key = key_of(sub(text, at, at + 15))
      n = n - call('LLEN', key) - groups().entries_in(sub(text, at, at + 15))
    end
    return n
  end

  -- Counts the entries in sublists again if the numbers differ. Returns the number of missing tasks, and the numbers of entries in sublists
  -- of lists whose rings are lost.
  local function missing_after_recount(text)
    local n, lost = missing_tasks(text), {}
    for at = 1, #text, 16 do
      local list = sub(text, at, at + 15)
      local entries = groups().entries_in(list)
      if entries > 0 and not groups().ring_of(list, 0, 0)[1] then lost[list] = entries elseif n ~= 0 then recount_sublists(list) end
    end
    return missing_tasks(text), lost
  end

  local function has_tombstone(entry) return call('HGET', TOMBSTONES, lists().tombstone_of(entry)) end

  local function has_ended(id, entry)
    return has_tombstone(entry) or call('HEXISTS', RESULTS, id) == 1 or call('ZSCORE', DIED, id)
  end

  -- Returns `true` if an entry does not say what the row of its task in `alive` should be: the task has ended or, if there is a row, it has
  -- moved to another queue and has left the entry behind.
  local function is_outdated(id, entry, row)
    if row then return has_tombstone(entry) end
    return has_ended(id, entry)
  end

  -- Restores the rows of tasks that are missing or unreadable in `alive`.
  local function restore_alive(ids, entries)
    if #ids == 0 then return end
    local back = {}
    for i, row in ipairs(call('HMGET', ALIVE, unpack(ids))) do
      local is_sound = is_intact(ids[i], entries[i])
      local whole = is_sound and alive_row(entries[i], 0)
      if is_sound and (not row or #row ~= #whole) and not is_outdated(ids[i], entries[i], row) then
        back[#back + 1], back[#back + 2] = ids[i], whole
      end
    end
    if #back == 0 then return end
    call('HSET', ALIVE, unpack(back))
    outcomes.count_damage(#back / 2, 'a row that says that a task is alive is missing, or cannot be read', {})
  end

  -- Ensures that a claim has these tasks, an owner, and a lease. `claim` has its three rows. Returns `true` if any of them was missing.
  local function restore_claim(epoch, ids, claim, lease)
    local has, missing = {}, {}
    for at = 1, #(claim[1] or ''), 16 do has[sub(claim[1], at, at + 15)] = true end
    for _, id in ipairs(ids) do if not has[id] then missing[#missing + 1] = id end end
    local has_owner = claim[3] and string.find(claim[3], '^-?%d+$', OWNER_SESSION)
    local length = has_owner and number_at('>I6', claim[3], OWNER_LEASE) or LOST_LEASE
    local held = tonumber(claim[2]) or not claim[1] and 0
    local is_whole = #missing == 0 and has_owner and held
    if not is_whole then
      local row = sub(claim[1] or '', 1, 16 * math.floor(#(claim[1] or '') / 16)) .. concat(missing)
      -- If the time of the claim is lost, it counts as made now.
      local owner = has_owner and claim[3] or NOBODY .. pack('>I6I6', length, now) .. '0'
      call('HSET', CLAIMS, epoch, row, epoch .. 'n', (held or MAX_BATCH) + #missing, epoch .. 'o', owner)
      if not has_owner then call('HSET', CLAIMS, epoch .. 'u', 1) end
    end
    if lease then return not is_whole end
    call('ZADD', LEASE, now + length, epoch)
    return true
  end

  -- Restores claims, given the ids of the tasks of each. Most pages have tasks of many claims, so they are read together. Returns the
  -- number of claims of which something was missing.
  local function restore_claims(tasks)
    local epochs, restored = {}, 0
    for epoch in pairs(tasks) do epochs[#epochs + 1] = epoch end
    for from = 1, #epochs, MAX_BATCH do
      local some, fields = { unpack(epochs, from, math.min(#epochs, from + MAX_BATCH - 1)) }, {}
      for i, epoch in ipairs(some) do fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = epoch, epoch .. 'n', epoch .. 'o' end
      local rows, leases = call('HMGET', CLAIMS, unpack(fields)), call('ZMSCORE', LEASE, unpack(some))
      for i, epoch in ipairs(some) do
        local claim = { rows[3 * i - 2], rows[3 * i - 1], rows[3 * i] }
        if restore_claim(epoch, tasks[epoch], claim, leases[i]) then restored = restored + 1 end
      end
    end
    return restored
  end

  -- Ends tasks whose rows in `running` are unreadable.
  local function end_unclaimed(ids, rows)
    if #ids == 0 then return end
    local collected, flags = outcomes.begin(), call('HMGET', CANCEL, unpack(ids))
    for i, id in ipairs(ids) do
      collected.ids[i], collected.rows[i] = id, rows[i]
      if flags[i] then collected.flags[#collected.flags + 1], collected.flags[#collected.flags + 2] = id, flags[i] end
      outcomes.tally(collected, 'lost')
      outcomes.mark_damaged(collected, id, 'its row among those that run cannot be read', rows[i])
    end
    outcomes.write('census', collected)
  end

  -- Gives permits to running tasks of named queues that have none. Without them, too many tasks could start.
  local function restore_permits_of(ids, entries)
    local holders, group_of = {}, {}
    local function hold(key, id)
      holders[key] = holders[key] or {}
      holders[key][#holders[key] + 1] = id
    end
    for i, id in ipairs(ids) do
      local queue, group = queues().queue_of(entries[i], 0), queues().group_of(entries[i], 0)
      if queue ~= '' then hold(PERMITS .. ':' .. queue, id) end
      if queue ~= '' and group ~= '' then
        local key = groups().permits_key(queue, group)
        group_of[key] = { queue, group }
        hold(key, id)
      end
    end
    for key, some in pairs(holders) do
      remove_other_type('SCARD', key)
      local added, group = call('SADD', key, unpack(some)), group_of[key]
      if group and added > 0 then change_groups(function() groups().update(group[1], { group[2] }) end) end
    end
  end

  -- Reads a page of `running`. Returns the next cursor, and `true` if something was missing.
  local function check_running(cursor)
    local scan, claims, broken, rows = call('HSCAN', RUNNING, cursor, 'COUNT', page), {}, {}, {}
    local ids, entries = {}, {}
    for i = 1, #scan[2], 2 do
      local id, row = scan[2][i], scan[2][i + 1]
      local epoch = sub(row, 1, RUNNING_EPOCH_END)
      if #epoch == 16 and not string.find(epoch, '%D') then
        claims[epoch] = claims[epoch] or {}
        claims[epoch][#claims[epoch] + 1] = id
        ids[#ids + 1], entries[#ids + 1] = id, sub(row, RUNNING_ENTRY)
      else
        broken[#broken + 1], rows[#broken + 1] = id, row
      end
    end
    local repaired = restore_claims(claims)
    if repaired > 0 then outcomes.count_damage(repaired, 'a part of a claim is missing, or cannot be read', {}) end
    restore_alive(ids, entries)
    restore_keys(ids, entries)
    restore_permits_of(ids, entries)
    end_unclaimed(broken, rows)
    return scan[1], repaired + #broken > 0
  end

  -- Each step processes a page. It returns `true` if it has more pages.
  local steps = {}

  function steps.clear()
    return #call('SPOP', UNLISTED, page) == page
  end

  -- Returns the first entry of a sublist of a list, if it can be read.
  local function sublist_head(list)
    local group = groups().ring_of(list, 0, 0)[1]
    local key = groups().sublist_key(list, group or '')
    local entry = group and call('LINDEX', key, 0)
    return is_entry(entry) and entry or nil
  end

  -- Returns the first entry of a list that no route names, unless other tasks of its kind go there.
  local function stray_in(list)
    local key = key_of(list)
    local first = call('HEXISTS', ROUTES, 'l' .. list) == 0 and (call('LINDEX', key, 0) or sublist_head(list))
    if not first or not is_entry(first) then return first or nil end
    local _, is_other = with_list(lists().path_of(sub(first, ENTRY_KIND, ENTRY_KIND_END)), list)
    return is_other and first or nil
  end

  -- Ends the task whose entry is the first of a list that no worker reads. The entry is unreadable.
  local function end_stray(list, entry)
    local key, collected = key_of(list), outcomes.begin()
    call('LPOP', key)
    outcomes.mark_damaged(collected, sub(entry, 1, ENTRY_ID_END), 'its entry cannot be read', entry)
    outcomes.write('census', collected)
  end

  -- Returns `true` if there was a stray. The census reads the lists that receive its entries in a later step.
  local function drain_stray(p, list)
    local first = stray_in(list)
    if not first then return false end
    if is_entry(first) then load_drain().drain_one(list, page) else end_stray(list, first) end
    for _, bundle in ipairs(state.pushed) do p.lists = with_list(p.lists, bundle.list) end
    return true
  end

  function steps.strays(p)
    for number = 0, SHARED_LISTS - 1 do
      if drain_stray(p, string.format('%016x', number)) then return true end
    end
    for at = 1, #p.lists, 16 do
      if drain_stray(p, sub(p.lists, at, at + 15)) then return true end
    end
    return false
  end

  local function has_strays(text)
    for at = 1, #text, 16 do
      if stray_in(sub(text, at, at + 15)) then return true end
    end
    return false
  end

  -- Adds the lists in which tasks of some kinds may wait, including each kind's own list if it exists. Returns `true` if one
  -- is new.
  local function add_lists(p, kinds)
    local seen, is_new = {}, false
    for _, kind in ipairs(kinds) do
      if #kind == 8 and not seen[kind] then
        seen[kind] = true
        local path, own = lists().path_of(kind), lists().own(kind)
        local key = key_of(own)
        remove_other_type('LLEN', key)
        if lists().may_have_entries(own, key) then path = path .. own end
        for at = 1, #path, 16 do
          local is_added
          p.lists, is_added = with_list(p.lists, sub(path, at, at + 15))
          is_new = is_new or is_added
        end
      end
    end
    return is_new
  end

  -- Puts the groups of some kinds back into rings from which they are missing, and counts their entries.
  local function restore_sublists(kinds, names)
    local seen = {}
    for i, group in pairs(names) do
      local path = #kinds[i] == 8 and not seen[kinds[i] .. group] and lists().path_of(kinds[i]) or ''
      seen[kinds[i] .. group] = true
      for at = 1, #path, 16 do restore_sublist(sub(path, at, at + 15), group) end
    end
  end

  local function scan_alive(p)
    local scan, ids, kinds, names = call('HSCAN', ALIVE, p.cursor, 'COUNT', page), {}, {}, {}
    for i = 1, #scan[2], 2 do
      local row = scan[2][i + 1]
      ids[#ids + 1], kinds[#ids + 1] = scan[2][i], sub(row, ALIVE_KIND, ALIVE_KIND_END)
      if #row > ALIVE_KEY_END then names[#ids] = group_in(row) end
    end
    p.cursor = scan[1]
    local is_new = add_lists(p, kinds)
    restore_sublists(kinds, names)
    return ids, is_new
  end

  -- Takes back the numbers from before the census: now that the rings are whole, their entries are counted twice. Until then, a list with
  -- a lost ring has a number, so that the routes keep it.
  local function forget_lost(p)
    for list, n in pairs(p.lost or {}) do groups().add_entries(list, -n) end
    p.lost = nil
  end

  function steps.kinds(p)
    local _, is_new = scan_alive(p)
    if p.cursor == '0' and p.lost then change_groups(function() forget_lost(p) end) end
    local may_end = not p.is_forced and (is_new and not p.lost or p.cursor == '0')
    p.is_over = may_end and missing_tasks(p.lists) == 0 and not has_strays(p.lists)
    return p.cursor ~= '0' and not p.is_over
  end

  function steps.running(p)
    p.cursor = check_running(p.cursor)
    return p.cursor ~= '0'
  end

  function steps.delayed(p)
    local scan, ids, entries = call('HSCAN', DELAYED, p.cursor, 'COUNT', page), {}, {}
    for i = 1, #scan[2], 2 do ids[#ids + 1], entries[#ids + 1] = scan[2][i], scan[2][i + 1] end
    restore_alive(ids, entries)
    restore_keys(ids, entries)
    p.cursor = scan[1]
    return p.cursor ~= '0'
  end

  function steps.tombstones(p)
    local scan, some, cancelled = call('HSCAN', TOMBSTONES, p.cursor, 'COUNT', page), {}, {}
    for i = 1, #scan[2], 2 do some[#some + 1], cancelled[#some + 1] = scan[2][i], sub(scan[2][i], TOMBSTONE_KIND, TOMBSTONE_KIND_END) end
    -- No route may name the list: the last task of the kind was cancelled, or a replacement gave it another kind.
    add_lists(p, cancelled)
    if #some > 0 then call('SADD', UNLISTED, unpack(some)) end
    p.cursor = scan[1]
    return p.cursor ~= '0'
  end

  function steps.alive(p)
    local ids, some = scan_alive(p), {}
    if #ids > 0 then
      local running, due = call('HMGET', RUNNING, unpack(ids)), call('ZMSCORE', DUE, unpack(ids))
      for i, id in ipairs(ids) do
        if not running[i] and not due[i] then some[#some + 1] = id end
      end
      if #some > 0 then call('SADD', UNLISTED, unpack(some)) end
    end
    return p.cursor ~= '0'
  end

  -- Goes on with the next sublist of a list, or with the next list. A sublist that is there all the time is in one of the pages of its
  -- ring.
  local function go_on(p, list)
    p.offset = 0
    if p.sublists then table.remove(p.sublists, 1) else p.sublists, p.ring_cursor = {}, '0' end
    while #p.sublists == 0 and p.ring_cursor do
      local key = groups().ring_key(list)
      local scan = call('ZSCAN', key, p.ring_cursor, 'COUNT', page)
      for i = 1, #scan[2], 2 do p.sublists[#p.sublists + 1] = scan[2][i] end
      p.ring_cursor = scan[1] ~= '0' and scan[1] or nil
    end
    if #p.sublists == 0 then p.at, p.sublists = p.at + 16, nil end
  end

  function steps.lists(p)
    local list = sub(p.lists, p.at, p.at + 15)
    if list == '' then return false end
    local key = p.sublists and groups().sublist_key(list, p.sublists[1]) or key_of(list)
    local entries, ids, sound = call('LRANGE', key, -p.offset - page, -p.offset - 1), {}, {}
    for _, entry in ipairs(entries) do
      local id = sub(entry, 1, ENTRY_ID_END)
      if is_intact(id, entry) then ids[#ids + 1], sound[#ids + 1] = id, entry end
    end
    lists().mark_listed(entries)
    restore_alive(ids, sound)
    restore_keys(ids, sound)
    p.offset = p.offset + page
    if #entries < page then go_on(p, list) end
    return true
  end

  -- Removes tombstones that belong to no entry. A later task of the same id would lose its entry to them.
  local function remove_tombstones(tombstones)
    if #tombstones == 0 then return end
    local n = 0
    for _, found in ipairs(call('HMGET', TOMBSTONES, unpack(tombstones))) do n = n + (found and (tonumber(found) or 1) or 0) end
    call('HDEL', TOMBSTONES, unpack(tombstones))
    if n > 0 then call('HINCRBY', META, 'tombstones', -n) end
  end

  -- Restores the due time of a delayed task whose entry is known.
  local function restore_due_time(id, entry)
    local ready_at = number_at('>I6', entry, ENTRY_READY_AT)
    call('ZADD', DUE, math.max(ready_at, now), id)
    outcomes.count_damage(1, 'when a task is due is missing', {})
    state.is_earlier = true
  end

  function steps.unlisted()
    local some, ids, tombstones = call('SRANDMEMBER', UNLISTED, math.min(page, 64)), {}, {}
    if #some == 0 then return false end
    for _, it in ipairs(some) do
      if #it == 16 then ids[#ids + 1] = it else tombstones[#tombstones + 1] = it end
    end
    if #ids > 0 then
      local alive, running = call('HMGET', ALIVE, unpack(ids)), call('HMGET', RUNNING, unpack(ids))
      local due, delayed, collected = call('ZMSCORE', DUE, unpack(ids)), call('HMGET', DELAYED, unpack(ids)), outcomes.begin()
      for i, id in ipairs(ids) do
        if alive[i] and not running[i] and not due[i] then
          if is_intact(id, delayed[i]) then
            restore_due_time(id, delayed[i])
          else
            outcomes.mark_damaged(collected, id, 'its entry is missing, or cannot be read', delayed[i] or alive[i])
          end
        end
      end
      if #collected.ended > 0 then outcomes.write('census', collected) end
    end
    remove_tombstones(tombstones)
    call('SREM', UNLISTED, unpack(some))
    return true
  end

  local ORDER = { 'clear', 'kinds', 'strays', 'running', 'delayed', 'tombstones', 'alive', 'lists', 'unlisted' }

  -- Begins a census if there is a reason for one. Returns its progress, or nil.
  local function begin(left, others, is_forced)
    local text = all_lists(others)
    local n, lost = missing_after_recount(text)
    if n == 0 and left ~= 0 then call('HSET', META, 'survey', cmsgpack.pack({ left = 0, lists = others })) end
    local is_settled = (n == 0 or n == left) and not next(lost) and not has_strays(others)
    if is_settled and not is_forced then return nil end
    if call('HLEN', TOMBSTONES) <= 4 * MAX_BATCH then call('HSET', META, 'tombstones', number_of_tombstones()) end
    call('HSET', META, 'census', 1)
    return { step = 1, cursor = '0', lists = text, at = 1, offset = 0, is_forced = is_forced, lost = next(lost) and lost or nil }
  end

  -- Ends a census. A remaining difference is no reason for another one.
  local function finish(p)
    local others = ''
    for at = 1, #p.lists, 16 do
      local list = sub(p.lists, at, at + 15)
      local key = key_of(list)
      if #others < 8192 and call('HEXISTS', ROUTES, 'l' .. list) == 0 and lists().may_have_entries(list, key) then others = others .. list end
    end
    local survey = { left = missing_tasks(all_lists(others)), lists = others }
    call('HSET', META, 'survey', cmsgpack.pack(survey))
    call('HDEL', META, 'census', 'progress')
  end

  -- Processes some pages. Returns `true` if there is more to do.
  return function(is_forced, pages)
    local row = call('HMGET', META, 'census', 'progress', 'survey', 'checked')
    local p = row[1] and progress_of(row[2])
    if not p or not ORDER[p.step] then
      local cursor, is_broken = check_running(cursor_of(row[4]))
      if cursor ~= (row[4] or '0') then call('HSET', META, 'checked', cursor) end
      local left, others = survey_of(row[3])
      p = begin(left, others, is_forced or is_broken)
    end
    if not p then return false end
    for _ = 1, pages do
      local goes_on = steps[ORDER[p.step]](p)
      if p.is_over or not goes_on and p.step == #ORDER then
        finish(p)
        return false
      end
      if not goes_on then p.step, p.cursor = p.step + 1, '0' end
    end
    call('HSET', META, 'progress', cmsgpack.pack(p))
    return true
  end
end

-- Processes the next pages of a census, or begins one. Returns `true` if there is more to do.
local function take_census(is_forced, page, pages)
  if skipped.census then return false end
  state.name = 'census'
  local is_more = make_census(page)(is_forced, pages)
  state.name = nil
  return is_more
end
