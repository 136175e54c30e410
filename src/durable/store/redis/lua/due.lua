-- Lets tasks wait whose delay is over: one unit.
--
-- Needs: unit, entry, lists, outcomes.

-- Returns when the first of a sorted set is due, or over.
local function first_of(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 'inf')
end

-- Puts about a batch of tasks that are due into the line, the earliest first. Returns when the first is due, if
-- there were none.
local function make_due()
  local due = first_of(DUE)
  if due > now then return due end

  local function is_of(id, entry) return is_entry(entry) and sub(entry, 1, 16) == id end

  -- Ends the tasks whose entries are missing or cannot be read. The others are looked at again.
  local function end_damaged(ids, scores, entries)
    local outcomes = make_outcomes()
    local of = outcomes.begin()
    for i, id in ipairs(ids) do
      if not is_of(id, entries[i]) then
        outcomes.damaged(of, id, 'its entry is missing, or cannot be read', entries[i])
        of.gone[#of.gone + 1], of.gone[#of.gone + 2] = scores[i], id
      end
    end
    outcomes.settle('due', of)
  end

  local ids, scores, quarantined = {}, {}, {}
  local rows = call('ZRANGEBYSCORE', DUE, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MAX_BATCH)
  for i = 1, #rows, 2 do ids[#ids + 1], scores[#ids + 1] = rows[i], rows[i + 1] end
  local entries = call('HMGET', DELAYED, unpack(ids))
  for i, entry in ipairs(entries) do
    if not is_of(ids[i], entry) then return end_damaged(ids, scores, entries) end
    if is_quarantined(entry) then quarantined[#quarantined + 1] = ids[i] end
  end
  local groups = lists().at_the_end(entries)
  state.unit = {
    undo = 'due', ids = ids, scores = scores, entries = entries, groups = groups, quarantined = quarantined,
  }
  if #quarantined > 0 then
    any_quarantined = true
    call('SADD', QUARANTINED, unpack(quarantined))
  end
  call('ZREM', DUE, unpack(ids))
  call('HDEL', DELAYED, unpack(ids))
  lists().push('RPUSH', groups)
  state.unit = nil
  for _, group in ipairs(groups) do state.pushed[#state.pushed + 1] = group end
  return nil
end
