-- Stores a step of a task that has not ended, as one transaction. If the task is delayed until it has as many steps as it has now, it is
-- due.
--
-- Needs: lists, entry, steps.
-- Undo: signal.
-- KEYS: NONE, META, READY, ALIVE, DELAYED, DUE, LEASE, TOMBSTONES, QUARANTINED, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS, GROUPS,
--   STEPS.
--
-- ARGV[1] -> id
-- ARGV[2] -> name
-- ARGV[3] -> value
--
-- Output: `s` if it was stored; `f` if the task has a step with this name; `a` if there is no such task, or it has ended; `x` if the task
--   has too many steps
--
-- Errors: UNDONE or PARTIAL if a command failed
local id, name = ARGV[1], ARGV[2]
if call('HEXISTS', ALIVE, id) == 0 then return 'a' end
local key = STEPS .. ':' .. id
state.transaction = {
  undo = 'signal', id = id, key = key, name = name, is_new = call('HEXISTS', key, name) == 0, row = call('HGET', key, ''),
  count = call('HGET', STEPS, id),
}
local answer, row = add_step(id, name, ARGV[3], state.transaction.count)
if row ~= state.transaction.count then call('HSET', STEPS, id, row) end
local n, waits, size = steps_of(id)
local is_reached = waits > 0 and n >= waits
local due = is_reached and call('ZSCORE', DUE, id)
if due then
  local entry = call('HGET', DELAYED, id)
  state.transaction.due, state.transaction.entry = due, entry
  if entry and is_entry(entry) then
    call('HSET', DELAYED, id, sub(entry, 1, ENTRY_READY_AT - 1) .. pack('>I6', now) .. sub(entry, ENTRY_KIND))
  end
  call('ZADD', DUE, 'XX', now, id)
end
-- The task waits for no steps any more, also if the time has made it due before.
if is_reached then call('HSET', key, '', pack('>I4I4', 0, size)) end
state.transaction = nil
if due then pcall(lists().wake_one) end
return sub(answer, 1, 1)
