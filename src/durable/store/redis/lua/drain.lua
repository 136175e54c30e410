-- Moves waiting tasks out of draining lists, one list per transaction. Tasks of a kind move to the next list of their path,
-- in their order.
--
-- Needs: transaction, lists.
-- Reads: epoch, tombstones.
-- Undo: drain.

-- `true` if a draining list is empty, and can be removed from the routes.
local is_drained = false
-- `true` if tasks have moved to the end of the list that they came from, since their path is damaged.
local is_stuck = false

-- Moves at most `most` entries. Unreadable ones are moved to the list `other`. Returns the number of entries.
local function drain(list, most, other)
  local key = key_of(list)
  local entries = call('LRANGE', key, 0, most - 1)
  local groups = lists().grouped(entries, function(path)
    local at = 1
    while sub(path, at, at + 15) ~= list and at < #path do at = at + 16 end
    local next = sub(path, at + 16, at + 31)
    return next ~= '' and next or sub(path, -16)
  end, other)
  for _, group in ipairs(groups) do
    is_stuck = is_stuck or group.list == list
    local key = group.key
    group.before = call('LLEN', key)
  end
  state.transaction = { undo = 'drain', groups = groups, key = key, entries = entries, length = call('LLEN', key) }
  lists().push('RPUSH', groups)
  if #entries > 0 then call('LTRIM', key, #entries, -1) end
  state.transaction = nil
  for _, group in ipairs(groups) do state.pushed[#state.pushed + 1] = group end
  is_drained = is_drained or #entries < most
  return #entries
end

local function drain_all(draining, leaves)
  local budget, moved = MAX_BATCH, 0
  repeat
    moved = 0
    -- The last list is drained first: its tasks are older, and sessions claim from the list that they move to.
    for i = #draining, 1, -1 do
      local n = budget > 0 and drain(draining[i], budget, leaves[1]) or 0
      budget, moved = budget - n, moved + n
    end
    -- Tasks may have moved into a list that was drained before.
  until moved == 0 or budget <= 0 or #draining == 1 or is_stuck
end
