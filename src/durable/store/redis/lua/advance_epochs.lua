-- Advances the epochs beyond those that the server may have lost. Each connection runs this before its first turn. If the
-- replication id of the server differs from the stored one, then the server was restarted or promoted, or the data were
-- copied to another server. The data may therefore be an older copy, and new epochs must be above the ceiling.
--
-- The ceiling of a copy is the same each time the copy is restored, so the time since the ceiling was raised is added.
--
-- Needs: epochs.
-- KEYS: NONE, META, LEASE.
--
-- Output: OK
--
-- The first write changes nothing. It makes a replica refuse the script even if the epochs need not be advanced: a replica
-- has the replication id of its primary, so the id does not distinguish the two. The script reads the id, rather than the
-- client, since a replica may be promoted between two requests.
call('ZREM', LEASE, '')
-- Without the permission for `INFO`, the epochs are not advanced.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
if not history or history == call('HGET', META, 'history') then return 'OK' end
local _, packed_epochs = next_epochs(0, 0, true)
call('HSET', META, 'history', history, 'epoch', packed_epochs)
-- A cursor is not valid on another server, so the round over the sessions starts again.
call('HDEL', META, 'cursor')
return 'OK'
