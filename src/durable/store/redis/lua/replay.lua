-- Replays dead letters, in the order of the ids, or deletes them, as one transaction.
--
-- Needs: lists, entry, alive_row, intact_entry, dead_letter_row, retention, held_keys, steps, cut_steps.
-- Reads: epoch, tombstones.
-- Undo: replay.
-- KEYS: NONE, META, READY, ALIVE, PAYLOADS, LEASE, RESULTS, HELD_KEYS, DEAD, DIED, ERRORS, TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES,
--   PERMITS, GROUPS, PROGRESS, STEPS.
--
-- ARGV[1]   -> "replay", "delete", or "from" to replay a dead letter from a step
-- ARGV[2]   -> number of ids, n
-- ARGV[3..] -> n ids
-- For "from", n is 1, and then:
-- ARGV[4]   -> name of the step
-- ARGV[5]   -> name of the first step that is removed
-- ARGV[6]   -> nonce 8
--
-- Output: a letter for each id: `y` if the dead letter is replayed or deleted, or was replayed with this nonce before, `n` if there is no
--   such dead letter, `k` if it is not replayed since another task holds its key, `m` if it is not replayed since it has no such step, `d`
--   if it is not replayed since it is damaged
--
-- Errors: UNDONE or PARTIAL if a command failed
local is_replay, step, cut = ARGV[1] ~= 'delete', ARGV[1] == 'from' and ARGV[4], nil
local ids, scores, dead, alive, entries, answers = {}, {}, {}, {}, {}, {}
-- The changes of `held_keys`: keys, new rows (false: removed), previous rows. `is_taken`: by key, the dead letter that gets it.
local keys, keys_after, keys_before, is_taken = {}, {}, {}, {}

local function change_key(key, row, before)
  keys[#keys + 1], keys_after[#keys + 1], keys_before[#keys + 1] = key, row, before
end

-- Gives a dead letter its key again, unless it held the key only until it was claimed. Returns `false` if another task holds the key.
local function take_key(id, entry)
  local key, mode = task_key(entry, 0)
  if key == '' or mode % 2 == 1 then return true end
  local row = call('HGET', HELD_KEYS, key)
  local holder = is_taken[key] or row and holder_of(key, row, call('HGET', ALIVE, sub(row, 1, HELD_ID_END)))
  if holder and holder ~= id then return false end
  is_taken[key] = id
  local is_own = row and sub(row, 1, HELD_ID_END) == id
  change_key(key, is_own and row or id, row)
  return true
end

-- Frees the key of a dead letter that is deleted.
local function free_key(id, row)
  if #row < DEAD_ERROR - 1 then return end
  local entry = sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH))
  local key = is_entry(entry) and task_key(entry, 0) or ''
  local held = key ~= '' and call('HGET', HELD_KEYS, key)
  if held and sub(held, 1, HELD_ID_END) == id then change_key(key, false, held) end
end

for i = 1, tonumber(ARGV[2]) do
  local id = ARGV[2 + i]
  local since = call('ZSCORE', DIED, id)
  local row = is_dead_letter_kept(since) and (call('HGET', DEAD, id) or '')
  local can_run = is_dead_letter_row(row) and byte(row) ~= DAMAGED and is_intact(id, sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH)))
  answers[i] = row and (is_replay and 'd' or 'y') or 'n'
  local known
  if can_run and step then known, cut = steps_from(id, step, ARGV[5], ARGV[6], 'dead') end
  -- A damaged task cannot run. It can only be deleted.
  if row and not is_replay then
    local at = 2 * #ids + 1
    ids[#ids + 1] = id
    scores[at], scores[at + 1] = since, id
    dead[at], dead[at + 1] = id, row
    free_key(id, row)
  elseif known then
    answers[i] = known
  elseif can_run and not take_key(id, sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH))) then
    answers[i] = 'k'
  elseif can_run then
    answers[i] = 'y'
    local at = 2 * #ids + 1
    ids[#ids + 1] = id
    scores[at], scores[at + 1] = since, id
    dead[at], dead[at + 1] = id, row
    local entry = sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH))
    local flags = byte(entry, ENTRY_FLAGS)
    entries[#ids] = sub(entry, 1, ENTRY_FAILURES - 1) .. string.rep('\0', 8) .. pack('>I6', now) .. sub(entry, ENTRY_KIND, ENTRY_FLAGS - 1)
      .. char(has_errors(flags) and flags - 4 or flags) .. sub(entry, ENTRY_FLAGS + 1)
    alive[at], alive[at + 1] = id, alive_row(entry, 0)
  end
end
if #ids == 0 then return concat(answers) end

-- Steps that are lost count no more: the next run repeats them.
local counts, counts_before = {}, {}
if is_replay and not cut and meta[8] then
  for i, row in ipairs(call('HMGET', STEPS, unpack(ids))) do
    local is_read, n = unless_of_other_type(steps_of, ids[i])
    if is_read and n < number_in(row) then
      counts[#counts + 1], counts[#counts + 2] = ids[i], pack('>I4', n)
      counts_before[#counts_before + 1], counts_before[#counts_before + 2] = ids[i], row
    end
  end
end

-- The first write must be one that a server without memory accepts; it then accepts the others.
call('ZREM', LEASE, '')
local bundles = lists().at_the_end(entries)
state.transaction = {
  undo = 'revive', is_replay = is_replay, ids = ids, scores = scores, dead = dead, bundles = bundles,
  errors = call('HMGET', ERRORS, unpack(ids)), keys = keys, keys_before = keys_before,
  cut = cut, counts_before = counts_before,
}
if #counts > 0 then call('HSET', STEPS, unpack(counts)) end
call('HDEL', ERRORS, unpack(ids))
-- A script that has failed may have left progress behind.
if is_replay then call('HDEL', PROGRESS, unpack(ids)) end
for i, key in ipairs(keys) do
  if keys_after[i] then call('HSET', HELD_KEYS, key, keys_after[i]) else call('HDEL', HELD_KEYS, key) end
end
if is_replay then call('HSET', ALIVE, unpack(alive)) else call('HDEL', PAYLOADS, unpack(ids)) end
call('HDEL', DEAD, unpack(ids))
call('ZREM', DIED, unpack(ids))
if not is_replay then
  state.transaction = nil
  pcall(remove_steps, ids)
end
if is_replay then
  lists().push('RPUSH', bundles)
  -- The nonce comes last: if it were written, and neither the rest nor its undoing succeeded, the request would seem to have had its
  -- effect.
  if cut then write_cut(cut) end
  pcall(call, 'HINCRBY', META, 'ended_apart', -#ids)
  pcall(lists().wake_for, bundles)
end
return concat(answers)
