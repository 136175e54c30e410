-- Recalls the epochs that the server may have lost. Every connection runs this before its first turn. If the
-- replication id of the server is not the one of the last recall, the server was restarted or promoted, or the data
-- were put into another server. So they may be an older copy, and new epochs are above the ceiling.
--
-- The ceiling of a copy is the same each time the copy is restored, so the time since it was raised is added.
--
-- Needs: ceiling.
-- Result: OK.
--
-- A replica refuses the first write, and with it the script, also if there is nothing to recall: its replication id is
-- that of its primary. The id is read here and not by the client, since a replica may be promoted between two requests.
call('ZREM', LEASE, '')
-- A user may lack the right to this. Then nothing is recalled.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
if not history or history == call('HGET', META, 'history') then return 'OK' end
local _, packed_epochs = next_epochs(0, 0, true)
call('HSET', META, 'history', history, 'epoch', packed_epochs)
return 'OK'
