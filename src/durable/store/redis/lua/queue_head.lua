-- Returns the tasks of a queue that became ready first, among those at the heads of its lists and of the sublists of its groups. Writes
-- nothing.
--
-- Needs: task_rows, lists, groups, queue_lists.
-- Reads: epoch, tombstones.
-- KEYS: NONE, META, READY, CLAIMS, LEASE, ERRORS, TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, GROUPS, TYPES.
--
-- ARGV[1] -> name of the queue; the default queue has none
-- ARGV[2] -> maximum number of tasks
--
-- Output:
-- [1]   -> time in milliseconds
-- [2..] -> descriptions of the tasks, in the order in which they became ready: see `task_rows.lua`
local queue, limit = ARGV[1], tonumber(ARGV[2])
-- The number of entries that may still be read. It includes entries that are skipped, because their tasks were cancelled or replaced.
local reads_left = 2 * MAX_HEAD_LISTS
-- The number of them that are reserved for other lists.
local reserved = 0
local has_tombstones = meta[5] ~= '0'
-- The number of entries that are read at a time.
local HEAD_PAGE = 16

-- ===== Heads of lists =====

local function is_in_queue(entry)
  return is_intact(sub(entry, 1, ENTRY_ID_END), entry) and queues().queue_of(entry, 0) == queue
end

-- Returns an iterator over the entries in a list whose tasks are in the queue. It returns nil at the end of the list, or if all other
-- reads are reserved. It reads one entry, and then a page at a time: most lists are read no further.
local function entries_of(key)
  -- `names` has, for each entry of the page, the name of its tombstones, or false if the task is in another queue. `left` has how many of
  -- these tombstones have not been used for an entry yet.
  local at, page, names, left = 0, {}, {}, {}

  local function read_tombstones()
    local fields = {}
    for i, entry in ipairs(page) do
      names[i] = is_in_queue(entry) and lists().tombstone_of(entry)
      fields[i] = names[i] or ''
    end
    for i, number in ipairs(call('HMGET', TOMBSTONES, unpack(fields))) do
      if names[i] then left[names[i]] = left[names[i]] or tonumber(number or '') or 0 end
    end
  end

  local function read_page()
    local last = at == 0 and 0 or at + math.min(HEAD_PAGE, reads_left) - 1
    page = call('LRANGE', key, at, last)
    if has_tombstones and #page > 0 then read_tombstones() end
  end

  -- Returns `true` if the task of the nth entry in the page is in another queue, or was cancelled or replaced.
  local function is_skipped(n)
    if not has_tombstones then return not is_in_queue(page[n]) end
    local name = names[n]
    if not name then return true end
    left[name] = left[name] - 1
    return left[name] >= 0
  end

  local next_in_page = 1
  return function()
    while reads_left > reserved do
      if next_in_page > #page then read_page(); next_in_page = 1 end
      local nth = next_in_page
      if not page[nth] then return nil end
      next_in_page, at, reads_left = nth + 1, at + 1, reads_left - 1
      if not is_skipped(nth) then return page[nth] end
    end
  end
end

local heads, deferred = {}, {}

-- Adds the next entry of a list or a sublist, and returns it.
local function add_head(next_entry)
  local entry = next_entry()
  if entry then heads[#heads + 1] = { entry = entry, ready_at = number_at('>I6', entry, ENTRY_READY_AT), next_entry = next_entry } end
  return entry
end

-- Adds the first entry of a list or a sublist. If many of its tasks were cancelled, half of the reads remain for other lists.
local function add_list(key)
  if #heads >= MAX_HEAD_LISTS then return end
  local next_entry = entries_of(key)
  reserved = math.floor(reads_left / 2)
  if not add_head(next_entry) and reads_left <= reserved then deferred[#deferred + 1] = next_entry end
end

for _, list in ipairs(lists_of_queue(queue)) do
  local key = key_of(list)
  add_list(key)
  local ring = queue ~= '' and groups().ring_of(list, 0, limit - 1) or {}
  for i = 1, #ring, 2 do
    local sublist = groups().sublist_key(list, ring[i])
    add_list(sublist)
  end
end
reserved = 0
for _, next_entry in ipairs(deferred) do add_head(next_entry) end

-- Returns the entry that became ready first, and advances in its list. Returns nil if there is none.
local function take_first()
  local first
  for i, head in ipairs(heads) do
    if not first or head.ready_at < heads[first].ready_at then first = i end
  end
  if not first then return nil end
  local head = heads[first]
  local entry = head.entry
  head.entry = head.next_entry()
  if head.entry then head.ready_at = number_at('>I6', head.entry, ENTRY_READY_AT) else table.remove(heads, first) end
  return entry
end

local answer = { now }
while #answer <= limit do
  local entry = take_first()
  if not entry then break end
  answer[#answer + 1] = describe_entry(sub(entry, 1, ENTRY_ID_END), entry)
end
return answer
