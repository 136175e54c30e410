-- Replays dead letters, in the order of the ids, or deletes them, as one transaction.
--
-- Needs: lists, entry, intact_entry, dead_letter_row, store_time.
-- Undo: replay.
-- KEYS: NONE, META, READY, ALIVE, PAYLOADS, LEASE, DEAD, DIED, ERRORS, TOMBSTONES, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS.
--
-- ARGV[1]   -> "replay" or "delete"
-- ARGV[2]   -> number of ids, n
-- ARGV[3..] -> n ids
--
-- Output: the number of dead letters found
--
-- Errors: UNDONE or PARTIAL if a command failed
local is_replay = ARGV[1] == 'replay'
local ids, scores, dead, alive, entries = {}, {}, {}, {}, {}
for i = 1, tonumber(ARGV[2]) do
  local id = ARGV[2 + i]
  local since = tonumber(call('ZSCORE', DIED, id) or '-inf')
  local row = since + DEAD_RETENTION > store_time() and (call('HGET', DEAD, id) or '')
  local can_run = is_dead_letter_row(row) and byte(row) ~= DAMAGED and is_intact(id, sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH)))
  -- A damaged task cannot run. It can only be deleted.
  if row and not is_replay then
    local at = 2 * #ids + 1
    ids[#ids + 1] = id
    scores[at], scores[at + 1] = since, id
    dead[at], dead[at + 1] = id, row
  elseif can_run then
    local at = 2 * #ids + 1
    ids[#ids + 1] = id
    scores[at], scores[at + 1] = since, id
    dead[at], dead[at + 1] = id, row
    local entry = sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH))
    local flags = byte(entry, ENTRY_FLAGS)
    entries[#ids] = sub(entry, 1, ENTRY_FAILURES - 1) .. string.rep('\0', 14) .. sub(entry, ENTRY_KIND, ENTRY_FLAGS - 1)
      .. char(has_errors(flags) and flags - 4 or flags) .. sub(entry, ENTRY_FLAGS + 1)
    alive[at], alive[at + 1] = id, alive_row(entry)
  end
end
if #ids == 0 then return 0 end

-- The first write must be one that a server without memory accepts; it then accepts the others.
call('ZREM', LEASE, '')
local groups = lists().at_the_end(entries)
state.transaction = {
  undo = 'revive', is_replay = is_replay, ids = ids, scores = scores, dead = dead, groups = groups,
  errors = call('HMGET', ERRORS, unpack(ids)),
}
call('HDEL', ERRORS, unpack(ids))
if is_replay then call('HSET', ALIVE, unpack(alive)) else call('HDEL', PAYLOADS, unpack(ids)) end
call('HDEL', DEAD, unpack(ids))
call('ZREM', DIED, unpack(ids))
if is_replay then
  lists().push('RPUSH', groups)
  pcall(call, 'HINCRBY', META, 'ended_apart', -#ids)
  pcall(lists().wake_for, groups)
end
return #ids
