-- Returns what shows that the server has lost writes. Writes nothing.
--
-- Needs: session.
-- KEYS: NONE, META, SESSIONS.
--
-- ARGV[1]   -> number of sessions, n
-- ARGV[2..] -> n sessions
--
-- Output: the field `birth` of `meta`, which differs for each store and is empty if there is none; for each session, the number of its
-- last request, or -1 if there is no such session
local found = { call('HGET', META, 'birth') or '' }
for i = 1, tonumber(ARGV[1]) do
  local session = find_session(ARGV[i + 1])
  found[i + 1] = session and session.number or -1
end
return found
