-- Adds delayed tasks that are due to their lists, as one transaction.
--
-- Needs: transaction, entry, lists, outcomes.
-- Reads: epoch, tombstones.
-- Undo: due.
-- Defines: first_of, make_due.

-- Returns the lowest score of a sorted set, which is the first due time or the first end of a lease.
local function first_of(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 'inf')
end

-- Adds about a batch of due tasks to the ends of their lists, the earliest first. If none is due, returns the time at which
-- the first one will be.
local function make_due()
  local due = first_of(DUE)
  if due > now then return due end

  local function is_of(id, entry) return is_entry(entry) and sub(entry, 1, ENTRY_ID_END) == id end

  -- Ends the tasks whose entries are missing or unreadable. The next turn handles the others.
  local function end_damaged(ids, scores, entries)
    local outcomes = make_outcomes()
    local collected = outcomes.begin()
    for i, id in ipairs(ids) do
      if not is_of(id, entries[i]) then
        outcomes.mark_damaged(collected, id, 'its entry is missing, or cannot be read', entries[i])
        collected.removed_due[#collected.removed_due + 1], collected.removed_due[#collected.removed_due + 2] = scores[i], id
      end
    end
    outcomes.write('due', collected)
  end

  local ids, scores, quarantined = {}, {}, {}
  local rows = call('ZRANGEBYSCORE', DUE, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MAX_BATCH)
  for i = 1, #rows, 2 do ids[#ids + 1], scores[#ids + 1] = rows[i], rows[i + 1] end
  local entries = call('HMGET', DELAYED, unpack(ids))
  for i, entry in ipairs(entries) do
    if not is_of(ids[i], entry) then return end_damaged(ids, scores, entries) end
    if is_quarantined(entry) then quarantined[#quarantined + 1] = ids[i] end
  end
  local bundles = lists().at_the_end(entries)
  state.transaction = {
    undo = 'due', ids = ids, scores = scores, entries = entries, bundles = bundles, quarantined = quarantined,
  }
  if #quarantined > 0 then
    any_quarantined = true
    call('SADD', QUARANTINED, unpack(quarantined))
  end
  call('ZREM', DUE, unpack(ids))
  call('HDEL', DELAYED, unpack(ids))
  lists().push('RPUSH', bundles)
  state.transaction = nil
  for _, bundle in ipairs(bundles) do state.pushed[#state.pushed + 1] = bundle end
  return nil
end
