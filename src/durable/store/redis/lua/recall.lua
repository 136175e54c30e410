-- Recalls the epochs that the server may have lost. Every connection runs this before its first turn. If the
-- replication id of the server is not that of the last recall, the server was restarted or promoted, or the data were put
-- into another server. So the data may be an older copy, and new epochs are above the ceiling.
--
-- The ceiling of a copy is the same each time the copy is restored, so the time since the ceiling was raised is added.
--
-- Needs: ceiling.
-- Result: OK.
--
-- The first write changes nothing. It makes a replica refuse the script even if there is nothing to recall: a replica has
-- the replication id of its primary, so the id does not tell the two apart. The script reads the id, and not the client,
-- since a replica may be promoted between two requests.
call('ZREM', LEASE, '')
-- If the user lacks the right to `INFO`, nothing is recalled.
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
if not history or history == call('HGET', META, 'history') then return 'OK' end
local _, packed_epochs = next_epochs(0, 0, true)
call('HSET', META, 'history', history, 'epoch', packed_epochs)
-- A cursor is not valid on another server, so the round over the sessions starts again.
call('HDEL', META, 'cursor')
return 'OK'
