-- Determines which workers are alive, as far as a server can tell.
--
-- Needs: session, lists.
-- Defines: is_gone, live_sets.

-- Returns `true` if a process is gone: its session has sent nothing for some minutes, and nobody receives its messages. A
-- worker sends a request at least once a minute. The difference is absolute, since the clock may have been set back.
local function is_gone(session)
  if math.abs(now - session.at) < SILENCE_LIMIT then return false end
  local receivers = redis.pcall('PUBSUB', NUMSUB, BASE .. 'client:' .. session.client)
  return receivers.err ~= nil or receivers[2] == 0
end

-- Returns the sets that have a live session.
local function live_sets()
  local sets = plain_set or call('HGET', ROUTES, 'sets') or ''
  local live, left, cursor = {}, #sets / 8, '0'
  repeat
    local page = call('HSCAN', SESSIONS, cursor, 'COUNT', 64)
    for i = 1, #page[2], 2 do
      local session = find_session(page[2][i])
      local set = session and session.set or ''
      if set ~= '' and not live[set] and not is_gone(session) then live[set], left = true, left - 1 end
    end
    cursor = page[1]
  until cursor == '0' or left <= 0
  return live
end
