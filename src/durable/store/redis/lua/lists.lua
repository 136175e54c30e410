-- Lists of waiting tasks, by kind: see `store/routes.rs`. A list id has 16 hexadecimal digits: the number of a shared
-- list, or the kind whose own list it is. `ready` is the main list, number 0. Of the others, the key has the id behind
-- it.
--
-- Fields of `routes`: k<kind>, its path, ids of lists; s<set>, what its sessions read: number of draining lists 2,
-- their ids, the ids of its leaves; l<list>, the sets that read it; n<set>, the number of its sessions; `sets`, all of
-- them; `text` and `version`, the value for clients. The field `routes` of `meta` has the version, 8 digits, and a set
-- behind it if that is the only one and its sessions read only the main list. It is absent if the routes have been
-- written in part.
--
-- Functions are made anew whenever a script runs. Most of these are needed only where workers differ, so they are made
-- only then, by `lists`.
--
-- Needs: base.
local version = meta[2] and sub(meta[2], 1, 8)
local plain_set = version and #meta[2] > 8 and sub(meta[2], 9) or nil

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

-- Returns the key of a list.
local function key_of(list) return list == MAIN and READY or READY .. ':' .. list end

-- Wakes some of the workers that read a list, or that belong to one of the sets in `sets`, of 8 bytes each.
local function wake(list, most, sets)
  sets = sets or plain_set and list == MAIN and plain_set or call('HGET', ROUTES, 'l' .. list) or ''
  for at = 1, #sets, 8 do
    if most <= 0 then return end
    most = wake_of(sub(sets, at, at + 7), most)
  end
end

local made_lists
local function lists()
  if made_lists then return made_lists end
  local paths = {}

  local function hex(kind)
    return (string.gsub(kind, '.', function(c) return string.format('%02x', byte(c)) end))
  end

  -- Reads the paths of some kinds. A kind without a path, or with one that cannot be read, has a list of its own.
  local function read_paths(kinds)
    local fields = {}
    for i, kind in ipairs(kinds) do
      paths[kind] = hex(kind)
      fields[i] = 'k' .. kind
    end
    for i, path in ipairs(call('HMGET', ROUTES, unpack(fields))) do
      if path and #path >= 16 and #path % 16 == 0 then paths[kinds[i]] = path end
    end
  end

  -- Returns the lists through which tasks of a kind go.
  local function path_of(kind)
    if not paths[kind] then read_paths({ kind }) end
    return paths[kind]
  end

  -- Reads the paths of all kinds of some entries at once.
  local function learn_paths(entries)
    local kinds, seen, last = {}, {}, nil
    for _, entry in ipairs(entries) do
      local kind = sub(entry, 47, 54)
      if kind ~= last and #kind == 8 and not paths[kind] and not seen[kind] then
        kinds[#kinds + 1], seen[kind] = kind, true
      end
      last = kind
    end
    if #kinds > 0 then read_paths(kinds) end
  end

  -- Returns entries in groups, each with the `list` that they go to, as `choose` says of the path of their kind. One
  -- that cannot be read goes to the list `other`, where a claim finds it.
  local function grouped(entries, choose, other)
    local groups, of, last, group = {}, {}, nil, nil
    learn_paths(entries)
    for _, entry in ipairs(entries) do
      local kind = sub(entry, 47, 54)
      if kind ~= last then
        local list = #kind == 8 and choose(paths[kind]) or other
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
    return grouped(entries, function(path) return sub(path, 1, 16) end)
  end

  local function at_the_head(entries)
    return grouped(entries, function(path) return sub(path, -16) end)
  end

  -- While there is a census, what is put into a list is no suspect: see `census.lua`. A census that cannot be told is
  -- given up.
  local function cleared(entries)
    local some = {}
    for _, entry in ipairs(entries) do
      some[#some + 1], some[#some + 2] = sub(entry, 1, 16), sub(entry, 1, 16) .. sub(entry, 47, 54)
    end
    if #some > 0 and not pcall(call, 'SREM', SUSPECTS, unpack(some)) then call('HDEL', META, 'census') end
  end

  local function push(command, groups)
    for _, group in ipairs(groups) do
      local key = group.key
      if meta[3] then cleared(group.entries) end
      call(command, key, unpack(group.entries))
      group.is_pushed = true
    end
  end

  -- Wakes some of the workers that read the lists to which tasks were pushed.
  local function wake_for(groups)
    for _, group in ipairs(groups) do wake(group.list, math.min(#group.entries, 4)) end
  end

  -- Wakes one that is idle, whatever it knows: a task is due earlier than those that wait believe.
  local function wake_one()
    wake(nil, 1, plain_set or call('HGET', ROUTES, 'sets') or '')
  end

  made_lists = {
    own = hex, path_of = path_of, grouped = grouped, at_the_end = at_the_end, at_the_head = at_the_head,
    cleared = cleared, push = push, wake_for = wake_for, wake_one = wake_one,
  }
  return made_lists
end
