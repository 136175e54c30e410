-- Makes delayed tasks due now, as one transaction: they go to the ends of their lists, in the order of the ids. May also remove steps of a
-- task that is delayed or waits.
--
-- Needs: lists, entry, intact_entry, cut_steps.
-- Reads: epoch, tombstones.
-- Undo: run_now.
-- KEYS: NONE, META, READY, ALIVE, DELAYED, DUE, LEASE, TOMBSTONES, QUARANTINED, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS, GROUPS,
--   RUNNING, STEPS.
--
-- ARGV[1]   -> number of ids, n, or "from" to replay a task from a step: n is 1
-- ARGV[2..] -> n ids
-- For "from", then:
-- ARGV[3]   -> name of the step
-- ARGV[4]   -> name of the first step that is removed
-- ARGV[5]   -> nonce 8
--
-- Output: a letter for each id: `y` if the task is due now, `n` if it was not delayed, `d` if it is damaged. With a step: `y` also if the
--   task waits and will run from the step, or was replayed with this nonce before, `n` if it is neither delayed nor waiting, and `m`, `s`
--   and `d` as in `cut_steps.lua`
--
-- Errors: UNDONE or PARTIAL if a command failed
local step, cut, record = ARGV[1] == 'from' and ARGV[3], nil, nil
local ids, answers, seen = { unpack(ARGV, 2, 1 + (step and 1 or tonumber(ARGV[1]))) }, {}, {}
if #ids == 0 then return '' end
-- The delayed tasks: pairs of ids and entries, pairs of due times and ids, and the new entries.
local delayed, dues, entries, quarantined = {}, {}, {}, {}
-- Pairs of keys and their rows, before and after.
local keys_before, keys_after = {}, {}

-- Changes the copy of the entry in the row of a key that lasts until the task starts.
local function change_copy(id, entry, new)
  local key, mode = task_key(entry, 0)
  local row = mode % 2 == 1 and call('HGET', HELD_KEYS, key)
  if row and #row >= HELD_ENTRY and sub(row, 1, HELD_ID_END) == id then
    keys_before[#keys_before + 1], keys_before[#keys_before + 2] = key, row
    keys_after[#keys_after + 1], keys_after[#keys_after + 2] = key, sub(row, 1, HELD_SINCE_END) .. new
  end
end

local function make_due(id, due, entry)
  delayed[#delayed + 1], delayed[#delayed + 2] = id, entry
  dues[#dues + 1], dues[#dues + 2] = due, id
  -- With its former time, its list would seem to have waited less than other lists until that time.
  local new = sub(entry, 1, ENTRY_READY_AT - 1) .. pack('>I6', now) .. sub(entry, ENTRY_KIND)
  entries[#entries + 1] = new
  if is_quarantined(entry) then quarantined[#quarantined + 1] = id end
  change_copy(id, entry, new)
end

local alive, found, rows = call('HMGET', ALIVE, unpack(ids)), call('ZMSCORE', DUE, unpack(ids)), call('HMGET', DELAYED, unpack(ids))
for i, id in ipairs(ids) do
  local is_delayed = alive[i] and found[i] and not seen[id]
  local answer = not is_delayed and 'n' or is_intact(id, rows[i]) and 'y' or 'd'
  local known
  if step and alive[i] then
    local status = is_delayed and 'delayed' or call('HEXISTS', RUNNING, id) == 1 and 'running' or 'waiting'
    known, cut, record = steps_from(id, step, ARGV[4], ARGV[5], status)
    answer = known or is_delayed and answer or 'y'
  end
  answers[i] = answer
  if known or answer ~= 'y' then cut, record = nil, nil elseif is_delayed then make_due(id, found[i], rows[i]) end
  seen[id] = true
end
if #entries == 0 and not cut then return concat(answers) end

-- The first write must be one that a server without memory accepts; it then accepts the others.
call('ZREM', LEASE, '')
local bundles = lists().at_the_end(entries)
state.transaction = {
  undo = 'run_now', delayed = delayed, dues = dues, quarantined = quarantined, bundles = bundles, keys = keys_before,
  cut = cut, record = record,
}
if #quarantined > 0 then call('SADD', QUARANTINED, unpack(quarantined)) end
if #keys_after > 0 then call('HSET', HELD_KEYS, unpack(keys_after)) end
for i = 2, #dues, 2 do
  call('ZREM', DUE, dues[i])
  call('HDEL', DELAYED, dues[i])
end
lists().push('RPUSH', bundles)
-- The nonce comes last: if it were written, and neither the rest nor its undoing succeeded, the request would seem to have taken effect.
if cut then write_cut(cut) end
if record then
  local key = record.key
  call('HSET', key, record.name, record.row)
end
state.transaction = nil
pcall(lists().wake_for, bundles)
return concat(answers)
