-- Begins a session. Without one, it only makes sure that the layout is written.
--
-- Needs: session, unit, entry, notices, results, outcomes, claims, reap.
-- ARGV: 1 session, or empty; 2 client id; 3 the number of partitions.
-- Result: OK.
-- Errors: NOSESSION if there is such a session; PARTITIONS <number> if the store has another number.
call('ZREM', LEASE, '')
local partitions = call('HGET', META, 'partitions') or meta[1] and '1' or ARGV[3]
if partitions ~= ARGV[3] then return redis.error_reply('PARTITIONS ' .. partitions) end
if not meta[1] then call('HSET', META, 'layout', LAYOUT, 'partitions', partitions) end
if ARGV[1] == '' then return 'OK' end
if not done.session then
  if call('HEXISTS', SESSIONS, ARGV[1]) == 1 then return redis.error_reply('NOSESSION it has ended') end
  save_session(ARGV[1], { number = 0, claim = '', last = '', first = '', client = ARGV[2] })
  has_effect('session')
end
reaping()(0)
flush()
return 'OK'
