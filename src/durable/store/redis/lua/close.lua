-- Ends a session. What it has claimed was given up: about a batch of it is taken back now.
--
-- ARGV: session, box.
call('ZREM', PARK, ARGV[2] .. ARGV[1])
local session = find_session(ARGV[1])
if not session then return 'OK' end
local epochs = call('ZRANGE', LEASE, 0, -1)
for _, epoch in ipairs(epochs) do
  local owner = call('HGET', CLAIMS, epoch .. 'o')
  if sub(owner, 15) == ARGV[1] then
    call('ZADD', LEASE, 'XX', 0, epoch)
    call('HSET', CLAIMS, epoch .. 's', 1)
    if session.last ~= epoch then call('HSET', CLAIMS, epoch .. 'b', 1) end
  end
end
call('HDEL', SESS, ARGV[1])
reaping()(0)
flush()
wake(4)
return 'OK'
