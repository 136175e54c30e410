-- Opens a session. Without a session, it only ensures that the layout is written.
--
-- Needs: session, lists, set_lists, session_counts, transaction, notifications, reap, epochs, cards.
-- Reads: epoch, tombstones.
-- KEYS: all.
--
-- ARGV[1] -> session, or empty
-- ARGV[2] -> client id
-- ARGV[3] -> number of partitions
-- ARGV[4] -> set of types that the session claims, or empty
-- ARGV[5] -> description of the process
-- ARGV[6] -> card, or empty
--
-- Output: the time in milliseconds, or NOSET if the set must be declared first
--
-- Errors:
-- NOSESSION                -> the session already exists
-- PARTITIONS <number>      -> the store has another number of partitions
-- UNREADABLE <field> <key> -> the layout or the number of partitions is not a number
call('ZREM', LEASE, '')
local partitions = call('HGET', META, 'partitions')
for field, text in pairs({ layout = meta[1] or '0', partitions = partitions or '0' }) do
  if string.find(text, '%D') or text == '' then return redis.error_reply('UNREADABLE ' .. field .. ' ' .. META) end
end
partitions = partitions or ARGV[3]
if partitions ~= ARGV[3] then return redis.error_reply('PARTITIONS ' .. partitions) end
if not meta[1] then
  local layout = string.match(call('HGET', META, 'layout_copy') or '', '^%d+$') or LAYOUT
  local routes = call('HGET', ROUTES, 'version') or NO_ROUTES
  call('HSET', META, 'layout', layout, 'layout_copy', layout, 'partitions', partitions, 'routes', routes, 'aged', pack('>I6I6I6', now, now, 2 * now), 'birth', ARGV[2] .. now)
  call('HSETNX', META, 'tombstones', call('HLEN', TOMBSTONES))
end
if ARGV[1] == '' then return now end
if not committed.session then
  if ARGV[4] ~= '' and not lists_of_set(ARGV[4]) then return 'NOSET' end
  if call('HEXISTS', SESSIONS, ARGV[1]) == 1 then return redis.error_reply('NOSESSION it has ended') end
  if ARGV[4] ~= '' then
    -- This ensures that each copy taken while a worker has a session has a high enough ceiling.
    local _, packed_epochs = next_epochs(0, 0)
    if packed_epochs ~= meta[4] then call('HSET', META, 'epoch', packed_epochs) end
    note_opened_set(ARGV[4])
  end
  if ARGV[6] ~= '' then call('ZADD', CARDS, 0, card_position(ARGV[1]) .. pack('>I6', now) .. ARGV[6]) end
  save_session(ARGV[1], {
    number = 0, claim = '', undelivered = '', first = '', at = now, client = ARGV[2], set = ARGV[4], suspects = '',
    process = LAYOUT .. ' ' .. ARGV[5],
  })
  if ARGV[4] ~= '' then add_sessions(ARGV[4], 1) end
  commit('session')
end
make_reaper()(0)
flush()
if #state.pushed > 0 or state.freed then pcall(lists().wake_for_committed) end
return now
