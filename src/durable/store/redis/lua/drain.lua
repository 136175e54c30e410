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

-- Moves at most `most` entries out of a list, or out of the sublist of a group. Unreadable ones are moved to the list `other`. Returns the
-- number of entries.
local function drain_key(list, key, most, other, sublist)
  local entries = call('LRANGE', key, 0, most - 1)
  local bundles = lists().bundled(entries, function(path)
    local at = 1
    while sub(path, at, at + 15) ~= list and at < #path do at = at + 16 end
    local next = sub(path, at + 16, at + 31)
    return next ~= '' and next or sub(path, -16)
  end, other)
  for _, bundle in ipairs(bundles) do
    is_stuck = is_stuck or bundle.list == list
    local key = bundle.key
    bundle.before = call('LLEN', key)
    -- The order of the groups is kept.
    bundle.turn = sublist and sublist.turn ~= 'inf' and sublist.turn or nil
  end
  state.transaction = { undo = 'drain', bundles = bundles, key = key, entries = entries, length = call('LLEN', key) }
  lists().push('RPUSH', bundles)
  if #entries > 0 then call('LTRIM', key, #entries, -1) end
  if sublist then
    groups().add_entries(list, -#entries)
    if #entries < most then groups().write_turn(list, sublist.group, sublist.turn, nil) end
  end
  state.transaction = nil
  for _, bundle in ipairs(bundles) do state.pushed[#state.pushed + 1] = bundle end
  return #entries
end

-- The same for a list and its sublists.
local function drain(list, most, other)
  local key = key_of(list)
  local moved = drain_key(list, key, most, other, nil)
  while moved < most do
    local first = groups().ring_of(list, 0, 0)
    if not first[1] then
      is_drained = true
      break
    end
    local sublist = groups().sublist_key(list, first[1])
    moved = moved + drain_key(list, sublist, most - moved, other, { group = first[1], turn = first[2] })
    if is_stuck then break end
  end
  return moved
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
