-- Stores a batch of tasks. A server without memory refuses only this script and `change_schedule.lua`: the first write fails, so
-- the script has no effect.
--
-- Needs: session, lists.
-- On demand: push_claim.
-- Ends with: add_tasks.
-- KEYS: NONE, META, SESSIONS, READY, ALIVE, PAYLOADS, DELAYED, DUE, RESULTS, DEAD, DIED, ERRORS, TOMBSTONES, IDLE, ROUTES,
--   UNLISTED, QUEUES, PERMITS, HELD_KEYS, GROUPS, PROGRESS, RUNNING, CLAIMS, LEASE, STEPS.
--
-- ARGV[1]   -> session
-- ARGV[2]   -> number of the request
-- ARGV[3]   -> first id
-- ARGV[4..] -> the tasks: see `add_tasks.lua`
--
-- Output: OK, or ROUTES if the client's routes are not those of the store. Both mean that all tasks are stored, by this execution or
-- by an earlier one, except those with conflicts. If there are conflicts, the output is a table: OK or ROUTES, and a string that has
-- for each task that is not stored: its position in the request 2, the resolution 1 (see `key_conflicts.lua`), id of the holder 16.
--
-- Errors:
-- NOSESSION         -> the session has ended, or has sent a later request
-- UNDONE or PARTIAL -> a command failed
local session, number = find_session(ARGV[1]), tonumber(ARGV[2])
if not session or number < session.number then return redis.error_reply('NOSESSION it has ended') end
local waiting_count, delayed_count = tonumber(ARGV[4]), tonumber(ARGV[5])
local total = waiting_count + delayed_count
if number == session.number then
  if session.first ~= ARGV[3] then return redis.error_reply('NOSESSION it has ended') end
  local first = 10 + 2 * total
  -- The tasks are stored, so a failure to wake workers does not matter.
  pcall(function() lists().wake_for(lists().at_the_end({ unpack(ARGV, first, first + waiting_count - 1) })) end)
  if state.is_earlier then pcall(lists().wake_one) end
  return session.answer and { 'OK', session.answer } or 'OK'
end
if total == 0 then return 'OK' end

local undo_by, schedule = 'enqueue', nil
local function push_claim(entries) return load_push_claim()(entries) end

-- Writes the number of the request. It is written last, since it confirms that everything else is written.
local function confirm(conflicts)
  session.number, session.claim, session.first, session.at = number, '', ARGV[3], now
  session.answer = conflicts
  save_session(ARGV[1], session)
end
