-- Lists of waiting tasks, by kind: see `store/routes.rs`. The id of a list has 16 hexadecimal digits: the number of a
-- shared list, or the kind whose own list it is. `ready` is the main list, number 0. The keys of the other lists end with
-- their ids.
--
-- Fields of `routes`:
--
-- k<kind> -> path of the kind: ids of lists
-- s<set>  -> lists that sessions of the set read: see `set_lists.lua`
-- l<list> -> length of the name of the list's queue 1, name, sets that read the list. A list without a queue, or with tasks of
--   several queues, has no name.
-- q<queue> -> lists that may have tasks of the queue
-- n<set>  -> number of sessions of the set
-- p<set>  -> lists that no set reads because the types of their tasks, which the set contains, are paused: number of those that are at the
--   ends of paths 2, these lists, and the others, which may have tasks of other types; or absent
-- sets    -> all sets
-- text, version -> the value for clients
--
-- The field `routes` of `meta` is the version, 8 digits. It is followed by a set if that is the only one and its sessions
-- read only the main list. The field is absent while the routes are written only in part.
--
-- Needs: queues, groups.
-- Defines: version, plain_set, wake_set, key_of, wake, lists.
--
-- Each run of a script creates its functions. Most functions of this part are needed only if workers differ, so `lists()` creates them on
-- demand, and returns them in a table.
local version = meta[2] and sub(meta[2], 1, 8)
local plain_set = version and #meta[2] > 8 and sub(meta[2], 9) or nil

-- Wakes idle workers of a set, beginning with the last to go idle, which is the most likely to be alive. If nobody receives
-- the message, the next worker is woken. Members of `idle:<set>`: client id 8, session. Returns the number of workers that
-- are still to be woken.
local function wake_set(set, most)
  local key = IDLE .. ':' .. set
  for _ = 1, 64 do
    if most <= 0 then return 0 end
    local idle = call('ZPOPMAX', key)[1]
    if not idle then return most end
    local reached = redis.pcall(PUBLISH, BASE .. 'client:' .. sub(idle, 1, 8), 'w' .. sub(idle, 9))
    if type(reached) == 'table' then return 0 end
    if reached > 0 then most = most - 1 end
  end
  return most
end

-- Returns the key of a list.
local function key_of(list) return list == MAIN and READY or READY .. ':' .. list end

-- Wakes at most `most` workers that read a list, unless its tasks have to wait for a permit of their queue. `row` is the field
-- l<list>, if it is known.
local function wake(list, most, row)
  if plain_set and list == MAIN and not row then
    wake_set(plain_set, most)
    return
  end
  row = row or call('HGET', ROUTES, 'l' .. list) or ''
  local length = byte(row) or 0
  if length > 0 and not queues().has_permit(sub(row, 2, 1 + length)) then return end
  for at = 2 + length, #row, 8 do
    if most <= 0 then return end
    most = wake_set(sub(row, at, at + 7), most)
  end
end

local made_lists
local function lists()
  if made_lists then return made_lists end
  local paths = {}

  local function hex(kind)
    return (string.gsub(kind, '.', function(c) return string.format('%02x', byte(c)) end))
  end

  -- Reads the paths of some kinds. A kind whose path is missing or unreadable has a list of its own.
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

  -- Returns the lists through which tasks of a kind move.
  local function path_of(kind)
    if not paths[kind] then read_paths({ kind }) end
    return paths[kind]
  end

  -- Reads the paths of the kinds of some entries with one command.
  local function load_paths(entries)
    local kinds, seen, last = {}, {}, nil
    for _, entry in ipairs(entries) do
      local kind = sub(entry, ENTRY_KIND, ENTRY_KIND_END)
      if kind ~= last and #kind == 8 and not paths[kind] and not seen[kind] then
        kinds[#kinds + 1], seen[kind] = kind, true
      end
      last = kind
    end
    if #kinds > 0 then read_paths(kinds) end
  end

  -- Returns the group of the task of an entry, which may be unreadable. Without a group, it is empty.
  local function group_of(entry)
    return (byte(entry, ENTRY_FLAGS) or 0) % 4 >= 2 and queues().group_of(entry, 0) or ''
  end

  -- Returns the field of `tombstones` for an entry.
  local function tombstone_of(entry)
    return sub(entry, 1, ENTRY_ID_END) .. sub(entry, ENTRY_KIND, ENTRY_KIND_END) .. group_of(entry)
  end

  -- Returns `true` if a list with this key has entries, perhaps in sublists.
  local function is_any_in(list, key)
    local ring = GROUPS .. ':ring:' .. list
    return call('EXISTS', key, ring) > 0
  end

  -- Returns `true` if a list may have entries, even if its ring is lost. This costs more than `is_any_in`.
  local function may_have_entries(list, key) return is_any_in(list, key) or groups().entries_in(list) > 0 end

  -- Bundles entries by list. `choose` selects the list from the path of an entry's kind. Unreadable entries are assigned to
  -- the list `other`, where a claim finds them. Fields of a bundle: `list`, the `key` of the list or the sublist, and `entries`; for a
  -- sublist, also `queue`, `group` and the `path` of the first entry.
  local function bundled(entries, choose, other)
    local bundles, bundles_by_key, last, last_group, bundle = {}, {}, nil, nil, nil
    load_paths(entries)
    for _, entry in ipairs(entries) do
      local kind, group = sub(entry, ENTRY_KIND, ENTRY_KIND_END), group_of(entry)
      if kind ~= last or group ~= last_group then
        local list = #kind == 8 and choose(paths[kind]) or other
        local key = group == '' and key_of(list) or groups().sublist_key(list, group)
        if not bundles_by_key[key] then
          bundles_by_key[key] = { list = list, key = key, entries = {} }
          bundles[#bundles + 1] = bundles_by_key[key]
          if group ~= '' then
            bundles_by_key[key].queue, bundles_by_key[key].group, bundles_by_key[key].path = queues().queue_of(entry, 0), group, paths[kind]
          end
        end
        last, last_group, bundle = kind, group, bundles_by_key[key].entries
      end
      bundle[#bundle + 1] = entry
    end
    return bundles
  end

  -- New tasks are added at the end of the first list of their path; requeued ones, at the head of the last.
  local function at_the_end(entries)
    return bundled(entries, function(path) return sub(path, 1, 16) end)
  end

  local function at_the_head(entries)
    return bundled(entries, function(path) return sub(path, -16) end)
  end

  -- During a census, a task that is added to a list is not unlisted: see `census.lua`. If it cannot be removed from that
  -- set, the census is abandoned.
  local function mark_listed(entries)
    local some = {}
    for _, entry in ipairs(entries) do
      some[#some + 1], some[#some + 2] = sub(entry, 1, ENTRY_ID_END), tombstone_of(entry)
    end
    if #some > 0 and not pcall(call, 'SREM', UNLISTED, unpack(some)) then call('HDEL', META, 'census') end
  end

  -- Counts the entries of groups that were pushed.
  local function count_grouped(bundles)
    for _, bundle in ipairs(bundles) do
      if bundle.group then return groups().count_pushed(bundles) end
    end
  end

  local function push(command, bundles)
    for _, bundle in ipairs(bundles) do
      local key = bundle.key
      if meta[3] then mark_listed(bundle.entries) end
      if bundle.group then
        groups().push(command, bundle)
      else
        -- If there are tombstones, the list may already have equal entries. The undo then needs its length: see `has_entries`.
        if meta[5] and meta[5] ~= '0' then bundle.before = call('LLEN', key) end
        call(command, key, unpack(bundle.entries))
        bundle.is_pushed = true
      end
    end
    count_grouped(bundles)
  end

  -- Returns the number of entries of a bundle for which workers are woken. Those of a full group cannot start. (A worker that is woken
  -- for a group that is held learns how long.)
  local function awaited_in(bundle)
    return bundle.group and groups().free_permits(bundle.queue, bundle.group) == 0 and 0 or #bundle.entries
  end

  -- Wakes some of the workers that read the lists of these bundles.
  local function wake_for(bundles)
    local awaited = {}
    for _, bundle in ipairs(bundles) do
      local is_read, n = pcall(awaited_in, bundle)
      awaited[bundle.list] = (awaited[bundle.list] or 0) + (is_read and n or 0)
    end
    -- If the rows of one queue cannot be read, workers of other queues are woken nevertheless.
    for _, bundle in ipairs(bundles) do
      if awaited[bundle.list] > 0 then pcall(wake, bundle.list, math.min(awaited[bundle.list], 4)) end
      awaited[bundle.list] = 0
    end
  end

  -- Wakes an idle worker of any set, since a task is due earlier than idle workers expect.
  local function wake_one()
    wake(nil, 1, '\0' .. (plain_set or call('HGET', ROUTES, 'sets') or ''))
  end

  -- Wakes up to `most` workers for each list that may have tasks of a queue, since a task of the queue may start.
  local function wake_queue(queue, most)
    local ids = call('HGET', ROUTES, 'q' .. queue) or ''
    for at = 1, #ids, 16 do
      local list = sub(ids, at, at + 15)
      local key = key_of(list)
      if is_any_in(list, key) then pcall(wake, list, most) end
    end
  end

  -- Wakes workers for the queues of which tasks have stopped running.
  local function wake_for_freed()
    for queue in pairs(state.freed or {}) do pcall(wake_queue, queue, 1) end
  end

  -- Wakes workers for the effects of the committed transactions.
  local function wake_for_committed()
    wake_for(state.pushed)
    wake_for_freed()
  end

  made_lists = {
    own = hex, path_of = path_of, group_of = group_of, tombstone_of = tombstone_of, is_any_in = is_any_in, may_have_entries = may_have_entries, bundled = bundled, at_the_end = at_the_end, at_the_head = at_the_head,
    mark_listed = mark_listed, push = push, count_grouped = count_grouped, wake_for = wake_for, wake_one = wake_one, wake_queue = wake_queue, wake_for_committed = wake_for_committed,
  }
  return made_lists
end
