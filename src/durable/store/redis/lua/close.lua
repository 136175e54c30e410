-- Ends a session. What it has claimed is given up, about a batch of claims at a time, and then about a
-- batch of it is taken back. Where to go on; nowhere, if it has ended.
--
-- ARGV: session, box, where to begin.
call('ZREM', PARK, ARGV[2])
local session = find_session(ARGV[1])
if not session then return '' end
local scan = call('ZSCAN', LEASE, ARGV[3], 'COUNT', MAX_BATCH)
for i = 1, #scan[2], 2 do
  local epoch = scan[2][i]
  local owner = call('HGET', CLAIMS, epoch .. 'o')
  if owner and sub(owner, 15) == ARGV[1] then
    call('ZADD', LEASE, 'XX', 0, epoch)
    call('HSET', CLAIMS, epoch .. 's', 1)
    if session.last ~= epoch then call('HSET', CLAIMS, epoch .. 'b', 1) end
  end
end
if scan[1] ~= '0' then return scan[1] end
call('HDEL', SESS, ARGV[1])
reap_late(0)
flush()
-- Others of its process rest under the same name, and are to say so again.
redis.pcall('PUBLISH', BASE .. 'in:' .. ARGV[2], 'w')
wake(4)
return ''
