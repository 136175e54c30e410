-- Lists of waiting tasks, by kind: see `store/routes.rs`. A list id has 8 bytes: the number of a shared list, or the
-- kind whose own list it is. `ready` is the main list, number 0. Of the others, the key has the id behind it.
--
-- Fields of `routes`: k<kind>, its path, ids of lists; s<set>, what its sessions read: number of draining lists 2,
-- their ids, the ids of its leaves; l<list>, the sets that read it; n<set>, the number of its sessions; `sets`, all of
-- them; `text` and `version`, the value for clients. If there is one set, and its sessions read only the main
-- list, `meta` has in `plain` the set and its kinds: then no script needs to look into `routes`.
--
-- Functions are made anew whenever a script runs. Most of these are needed only where workers differ, so they are made
-- only then, by `lists`.
--
-- Needs: base.
local plain = meta[4] or nil
local plain_set = plain and sub(plain, 1, 8)

-- Wakes idle workers of a set, the last first, since it is the most likely to be alive. A wake without a receiver goes
-- to the next. The members of `idle:<set>` are: client id 8, session. Returns how many are still to be woken.
local function wake_of(set, most)
  local key = IDLE .. ':' .. set
  for _ = 1, 64 do
    if most <= 0 then return 0 end
    local idle = call('ZPOPMAX', key)[1]
    if not idle then return most end
    local reached = redis.pcall('PUBLISH', BASE .. 'client:' .. sub(idle, 1, 8), 'w')
    if type(reached) == 'table' then return 0 end
    if reached > 0 then most = most - 1 end
  end
  return most
end

local function make_lists()
  local MAIN = string.rep('\0', 8)
  local paths = {}

  -- Returns whether the plain set knows a kind.
  local function is_plain(kind)
    if not plain then return false end
    local at = string.find(plain, kind, 9, true)
    while at and at % 8 ~= 1 do at = string.find(plain, kind, at + 1, true) end
    return at ~= nil
  end

  -- Returns the lists through which tasks of a kind go.
  local function path_of(kind)
    local path = paths[kind]
    if not path then
      path = is_plain(kind) and MAIN or call('HGET', ROUTES, 'k' .. kind) or kind
      paths[kind] = path
    end
    return path
  end

  local function key_of(list)
    if list == MAIN then return READY end
    return READY .. ':' .. string.gsub(list, '.', function(c) return string.format('%02x', byte(c)) end)
  end

  -- Returns entries in groups, each with the `list` that they go to, as `choose` says of the path of their kind. One
  -- that cannot be read goes to the list `other`, where a claim finds it.
  local function grouped(entries, choose, other)
    local groups, of, last, group = {}, {}, nil, nil
    for _, entry in ipairs(entries) do
      local kind = sub(entry, 47, 54)
      if kind ~= last then
        local list = #kind == 8 and choose(path_of(kind)) or other
        if not of[list] then
          of[list] = { list = list, key = key_of(list), entries = {} }
          groups[#groups + 1] = of[list]
        end
        last, group = kind, of[list].entries
      end
      group[#group + 1] = entry
    end
    return groups
  end

  -- New tasks go to the end of the first list of their path; those that come back, to the head of the last.
  local function at_the_end(entries)
    return grouped(entries, function(path) return sub(path, 1, 8) end)
  end

  local function at_the_head(entries)
    return grouped(entries, function(path) return sub(path, -8) end)
  end

  local function push(command, groups)
    for _, group in ipairs(groups) do
      local key = group.key
      call(command, key, unpack(group.entries))
    end
  end

  -- Returns the lists that a set's sessions read: those to be drained, and those to claim from.
  local function lists_of(set)
    if set == plain_set then return {}, { MAIN } end
    local plan = set ~= '' and call('HGET', ROUTES, 's' .. set)
    if not plan then return nil end
    local lists, draining, leaves = number_at('>I2', plan), {}, {}
    for at = 3, #plan, 8 do
      local to = #draining < lists and draining or leaves
      to[#to + 1] = sub(plan, at, at + 7)
    end
    return draining, leaves
  end

  -- Wakes some of those that belong to one of these sets, 8 bytes each.
  local function wake_any(sets, most)
    for at = 1, #sets, 8 do
      if most <= 0 then return end
      most = wake_of(sub(sets, at, at + 7), most)
    end
  end

  -- Wakes some of those that read a list.
  local function wake(list, most)
    if plain and list == MAIN then return wake_of(plain_set, most) end
    return wake_any(call('HGET', ROUTES, 'l' .. list) or '', most)
  end

  -- The same, for tasks that were pushed.
  local function wake_for(groups)
    for _, group in ipairs(groups) do wake(group.list, math.min(#group.entries, 4)) end
  end

  -- Wakes one that is idle, whatever it knows: a task is due earlier than those that wait believe.
  local function wake_one()
    wake_any(plain_set or call('HGET', ROUTES, 'sets') or '', 1)
  end

  return {
    MAIN = MAIN, path_of = path_of, key_of = key_of, grouped = grouped, at_the_end = at_the_end, at_the_head = at_the_head,
    push = push, of_set = lists_of, wake = wake, wake_for = wake_for, wake_one = wake_one,
  }
end

local made_lists
local function lists()
  made_lists = made_lists or make_lists()
  return made_lists
end
