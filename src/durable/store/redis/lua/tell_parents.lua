-- Stores the ends of children, whose notes another partition has, as steps of parents that have not ended or are dead letters. If a command
-- fails, the request is repeated: the first end of a child counts.
--
-- Needs: children.
-- Undo: signal.
-- KEYS: NONE, META, READY, ALIVE, DELAYED, DUE, LEASE, TOMBSTONES, QUARANTINED, IDLE, ROUTES, UNLISTED, QUEUES, PERMITS, HELD_KEYS, GROUPS,
--   STEPS, NOTES, DIED.
--
-- ARGV[1]   -> number of notes, n
-- ARGV[2..] -> n times: id of the child; its note
--
-- Output: the ids of the children of which the notes are no longer needed. The other notes stay until maintenance has repaired the
-- parents
--
-- Errors: UNDONE if a command failed
--
-- The first write must be one that a server without memory accepts; it then accepts the others.
call('ZREM', LEASE, '')
local notes = {}
for i = 2, 1 + 2 * tonumber(ARGV[1]) do notes[#notes + 1] = ARGV[i] end
local gone = children().tell(notes, true)
if state.is_earlier then pcall(lists().wake_one) end
return gone
