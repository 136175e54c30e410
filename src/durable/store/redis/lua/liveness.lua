-- Which workers live, as far as a server can tell.
--
-- Needs: session, lists.

-- Returns whether a process is gone: its session was not heard for some minutes, and it receives no messages. A
-- worker is heard at least once a minute. A clock that was set says nothing.
local function is_gone(session)
  if math.abs(now - session.at) < SILENT_FOR then return false end
  local heard = redis.pcall('PUBSUB', 'NUMSUB', BASE .. 'client:' .. session.client)
  return heard.err ~= nil or heard[2] == 0
end

-- Returns the sets of which a session lives.
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
