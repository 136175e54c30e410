-- Begins a session. Without one, it only makes sure that the layout is written.
--
-- Needs: session, lists, counted, unit, entry, notices, results, outcomes, claims, reap, ceiling.
-- ARGV: 1 session, or empty; 2 client id; 3 the number of partitions; 4 the set of types that it claims, or empty.
-- Result: the time, in milliseconds; or NOSET if the set must be declared first.
-- Errors: NOSESSION if there is such a session; PARTITIONS <number> if the store has another number of partitions; GARBLED
-- <field> <key> if the layout or the number of partitions is not a number.
call('ZREM', LEASE, '')
local partitions = call('HGET', META, 'partitions')
for field, text in pairs({ layout = meta[1] or '0', partitions = partitions or '0' }) do
  if string.find(text, '%D') or text == '' then return redis.error_reply('GARBLED ' .. field .. ' ' .. META) end
end
partitions = partitions or ARGV[3]
if partitions ~= ARGV[3] then return redis.error_reply('PARTITIONS ' .. partitions) end
if not meta[1] then
  local routes = call('HGET', ROUTES, 'version') or NO_ROUTES
  call('HSET', META, 'layout', LAYOUT, 'partitions', partitions, 'routes', routes, 'aged', pack('>I6I6I6', now, now, 2 * now))
  call('HSETNX', META, 'tombstones', call('HLEN', TOMBSTONES))
end
if ARGV[1] == '' then return now end
if not done.session then
  if ARGV[4] ~= '' and not lists_of(ARGV[4]) then return 'NOSET' end
  if call('HEXISTS', SESSIONS, ARGV[1]) == 1 then return redis.error_reply('NOSESSION it has ended') end
  if ARGV[4] ~= '' then
    -- So each copy that is taken while a worker has a session has a ceiling that is high enough.
    local _, packed_epochs = next_epochs(0, 0)
    if packed_epochs ~= meta[4] then call('HSET', META, 'epoch', packed_epochs) end
    note_opened(ARGV[4])
  end
  save_session(ARGV[1], {
    number = 0, claim = '', undelivered = '', first = '', at = now, client = ARGV[2], set = ARGV[4], suspects = '',
  })
  if ARGV[4] ~= '' then count_session(ARGV[4], 1) end
  has_effect('session')
end
reaping()(0)
flush()
if #state.pushed > 0 then pcall(lists().wake_for, state.pushed) end
return now
