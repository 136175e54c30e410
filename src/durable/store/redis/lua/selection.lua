-- Selects the tasks of a claim if some waiting tasks have groups, or are cancelled, quarantined or damaged, or if the workers have
-- different sets. Other claims do not need this file.
--
-- Needs: claim_state, entry, lists, outcomes, claim_scan, ring.
-- Returns: a table of the functions `has_claimable`, `ring_head`, `select_tasks` and `end_unreadable`.

-- The number of entries that a script may still read to find a list with a task to claim. The claim reads them again.
local looks_left = 4 * MAX_BATCH

-- Returns `true` if a list has a task that may be claimed, or so many entries of cancelled tasks that a claim should remove some. The task
-- may be quarantined if `accepts_quarantined`. Returns 'perhaps' if too many entries would have to be read to know that. Also returns
-- `true` if an entry before that belongs to a cancelled task.
local function has_claimable(key, accepts_quarantined)
  local left_by_id, is_any_cancelled, from, n = {}, false, 0, 4
  while looks_left > 0 do
    local entries, ids = call('LRANGE', key, from, from + n - 1), {}
    if #entries == 0 then return false, is_any_cancelled end
    looks_left = looks_left - #entries
    for i, entry in ipairs(entries) do ids[i] = lists().tombstone_of(entry) end
    if tombstones > 0 then read_tombstones(ids, left_by_id) end
    for i, entry in ipairs(entries) do
      if (left_by_id[ids[i]] or 0) > 0 then
        left_by_id[ids[i]], is_any_cancelled = left_by_id[ids[i]] - 1, true
      elseif accepts_quarantined or not is_entry(entry) or not is_quarantined(entry) then
        return true, is_any_cancelled
      end
    end
    from, n = from + n, math.min(2 * n, MAX_BATCH)
  end
  return call('EXISTS', key) == 1 and (is_any_cancelled or 'perhaps'), is_any_cancelled
end

-- Ends the tasks of unreadable entries, if their ids are known.
local function end_unreadable(rows)
  local outcomes = make_outcomes()
  local collected, scanned = outcomes.begin(), {}
  for _, row in ipairs(rows) do
    local id = sub(row, 1, ENTRY_ID_END)
    if not scanned[id] then outcomes.mark_damaged(collected, id, 'its entry cannot be read', row) end
    scanned[id] = true
  end
  outcomes.write('damaged', collected)
end

-- Returns `true` if a list has a task of a group that may be claimed, and then its sublist. Also returns `true` if a claim should pass over
-- groups that are full or held, or should remove entries of cancelled tasks: see `block_everywhere`. Returns 'perhaps' if too many groups
-- would have to be looked at. The second result is `true` if an entry before that belongs to a cancelled task.
local function ring_head(list, queue, accepts_quarantined)
  local is_any, is_any_cancelled, is_any_blocked = false, false, false
  for rank = 0, MAX_IDLE_SUBLISTS - 1, 16 do
    local sublists, is_more = read_ring(list, rank, 16)
    for _, sublist in ipairs(sublists) do
      local key = groups().sublist_key(list, sublist.group)
      local is_claimable, is_cancelled = groups().may_start(queue, sublist.group), false
      is_any_blocked = is_any_blocked or not is_claimable
      if is_claimable and (tombstones > 0 or any_quarantined and not accepts_quarantined) then
        is_claimable, is_cancelled = has_claimable(key, accepts_quarantined)
      end
      is_any_cancelled = is_any_cancelled or is_cancelled
      if is_claimable == true then return true, is_any_cancelled, key end
      is_any = is_any or is_claimable
    end
    if not is_more then return is_any, is_any_cancelled end
  end
  return is_any_blocked or is_any_cancelled or 'perhaps', is_any_cancelled
end

-- Selects up to the wanted number of tasks from a list: those of groups come first, if tasks of the queue may have groups. Fields of the
-- result: the `scans` of the list and of the `sublists`, and `damaged` entries.
local function select_tasks(list, queue, has_groups, accepts_quarantined)
  local choice = { scans = {}, sublists = {}, damaged = {} }
  local scans, sublists = choice.scans, choice.sublists
  may_be_quarantined = accepts_quarantined
  if has_groups then
    for i, sublist in ipairs(select_from_groups(list, queue)) do scans[i], sublists[i] = sublist.scan, sublist end
  end
  if #claimed < want and not is_full then
    local key = key_of(list)
    scans[#scans + 1] = scan_entries(key, '')
    scans[#scans].select(want)
  end
  for _, scan in ipairs(scans) do
    scan.prepare()
    for _, row in ipairs(scan.damaged) do choice.damaged[#choice.damaged + 1] = row end
  end

  -- Removes the selected entries. The tasks of groups get permits, and the groups that were served go to the end of the ring.
  function choice.take()
    local taken = 0
    for _, sublist in ipairs(sublists) do
      local key = groups().permits_key(queue, sublist.group)
      if #sublist.ids > 0 then call('SADD', key, unpack(sublist.ids)) end
      taken = taken + #sublist.scan.scanned - #sublist.scan.passed
    end
    for _, scan in ipairs(scans) do scan.take() end
    if taken > 0 then groups().add_entries(list, -taken) end
    if #sublists > 0 then groups().write_served(list, queue, sublists) end
  end

  return choice
end

return { has_claimable = has_claimable, ring_head = ring_head, select_tasks = select_tasks, end_unreadable = end_unreadable }
