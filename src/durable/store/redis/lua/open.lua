-- Begins a session, or, without one, only sees to it that the layout is written.
--
-- ARGV: session, box, how many partitions there are to be.
call('ZREM', LEASE, '')
local partitions = call('HGET', META, 'partitions') or meta[1] and '1' or ARGV[3]
if partitions ~= ARGV[3] then return redis.error_reply('PARTITIONS ' .. partitions) end
if not meta[1] then call('HSET', META, 'layout', LAYOUT, 'partitions', partitions) end
if ARGV[1] == '' then return 'OK' end
if call('HEXISTS', SESS, ARGV[1]) == 1 then return redis.error_reply('NOSESSION it has ended') end
save_session(ARGV[1], { number = 0, claim = '', last = '', first = '', box = ARGV[2] })
reaping()(0)
flush()
return 'OK'
