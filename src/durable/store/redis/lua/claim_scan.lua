-- Reads the entries of a list or a sublist one by one, and selects those that a claim takes.
--
-- Needs: claim_state, entry, lists.
-- Defines: is_full, may_be_quarantined, scans_left, read_tombstones, scan_entries.

-- The size of the claimed payloads, and `true` if the next one is too large.
local claimed_bytes, is_full = 0, false
-- `true` if the claim may have a quarantined task.
local may_be_quarantined = false

-- The number of entries that the scans of a script may still read if some tasks are cancelled or quarantined. The entries that they remove
-- are removed for good, so the next turn of a worker continues after them.
local scans_left = 4 * MAX_BATCH

-- Reads how many tombstones there are of these ids, kinds and groups, with one command. `known` has the numbers that were read before.
local function read_tombstones(ids, known)
  local missing, seen = {}, {}
  for _, id in ipairs(ids) do
    if not known[id] and not seen[id] then missing[#missing + 1], seen[id] = id, true end
  end
  for i, row in ipairs(#missing > 0 and call('HMGET', TOMBSTONES, unpack(missing)) or {}) do
    known[missing[i]] = row and (tonumber(row) or 1) or 0
  end
end

-- Returns a scan of the entries of a list or a sublist in which some may be cancelled or quarantined. Entries that are passed over stay at
-- its head. The group of a list is empty.
local function scan_entries(key, group)
  local scan = {
    key = key, group = group, scanned = {}, passed = {}, quarantined = {}, damaged = {}, tombstones_by_id = {}, removed = 0, tombstones = tombstones,
  }
  local scanned, passed, tombstones_by_id = scan.scanned, scan.passed, scan.tombstones_by_id
  local is_plain = tombstones == 0 and not any_quarantined
  -- The entries that were read and not scanned, from an index on.
  local page, at = {}, 1
  local known = {}

  local function id_of(entry) return sub(entry, 1, ENTRY_ID_END) .. sub(entry, ENTRY_KIND, ENTRY_KIND_END) .. group end

  -- Returns `true` if the entry belongs to a cancelled task. Among entries of one id and kind, those of cancelled tasks
  -- are the first.
  local function is_tombstone(entry)
    if tombstones == 0 then return false end
    local id = id_of(entry)
    if known[id] == 0 then return false end
    tombstones_by_id[id] = tombstones_by_id[id] or { before = known[id], left = known[id] }
    if tombstones_by_id[id].left <= 0 then return false end
    tombstones_by_id[id].left, scan.removed = tombstones_by_id[id].left - 1, scan.removed + 1
    return true
  end

  -- Reads one more entry than is needed, so that it is usually known whether any is left. If some entries are cancelled, the pages grow.
  local function read(n)
    if scan.is_over or not is_plain and scans_left <= 0 then return false end
    n = is_plain and n + 1 or math.max(n + 1, math.min(2 * #page, MAX_BATCH))
    page, at = call('LRANGE', key, #scanned, #scanned + n - 1), 1
    scan.is_over = #page < n
    if is_plain then return #page > 0 end
    scans_left = scans_left - #page
    local ids = {}
    for i, entry in ipairs(page) do ids[i] = id_of(entry) end
    if tombstones > 0 then read_tombstones(ids, known) end
    return #page > 0
  end

  -- Claims an entry, unless it is quarantined or too large. Returns `false` if it is too large.
  local function take_entry(entry)
    local is_one = any_quarantined and is_quarantined(entry)
    if is_one and not may_be_quarantined then
      passed[#passed + 1] = entry
      return true
    end
    claimed_bytes = claimed_bytes + number_at('>I4', entry, ENTRY_LENGTH)
    is_full = claimed_bytes > want_bytes and #claimed > 0
    if is_full then return false end
    claimed[#claimed + 1] = entry
    if is_one then scan.quarantined[#scan.quarantined + 1], may_be_quarantined = sub(entry, 1, ENTRY_ID_END), false end
    return true
  end

  -- Claims entries until the claim has this number.
  function scan.select(most)
    any_separate, any_extension, any_failed = true, true, true
    while #claimed < most and not is_full and #scanned < 4 * MAX_BATCH do
      if not page[at] and not read(most - #claimed) then return end
      local entry = page[at]
      if not is_entry(entry) then
        scan.damaged[#scan.damaged + 1] = entry
      elseif not is_tombstone(entry) and not take_entry(entry) then
        return
      end
      at, scanned[#scanned + 1] = at + 1, entry
    end
  end

  -- Returns `true` if entries are left once the selected ones are removed.
  function scan.has_rest()
    return #passed > 0 or page[at] ~= nil or not scan.is_over and call('LLEN', key) > #scanned
  end

  -- Reads what is needed to undo the removal.
  function scan.prepare() scan.length = not is_plain and call('LLEN', key) or nil end

  -- Removes from the list the selected entries, and those of cancelled tasks.
  function scan.take()
    local gone = {}
    for id, tombstone in pairs(tombstones_by_id) do
      if tombstone.left == 0 then gone[#gone + 1] = id else call('HSET', TOMBSTONES, id, tombstone.left) end
    end
    if #gone > 0 then call('HDEL', TOMBSTONES, unpack(gone)) end
    tombstones = tombstones - scan.removed
    if scan.removed > 0 then call('HSET', META, 'tombstones', tombstones) end
    if #scan.quarantined > 0 then call('SREM', QUARANTINED, unpack(scan.quarantined)) end
    if #scanned > 0 then call('LTRIM', key, #scanned, -1) end
    local last = {}
    for i = #passed, 1, -1 do last[#last + 1] = passed[i] end
    if #last > 0 then
      if meta[3] then lists().mark_listed(last) end
      call('LPUSH', key, unpack(last))
    end
  end

  return scan
end
