-- Returns a page of the sessions that have a card, in the order of their ids.
--
-- Needs: session, lists, liveness, cards.
-- KEYS: NONE, META, SESSIONS, READY, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS, CLAIMS, CARDS.
--
-- ARGV[1] -> last session of the page before, or empty
-- ARGV[2] -> maximum number of sessions
--
-- Output:
-- [1]   -> last session of this page, or empty if no others follow
-- [2..] -> for each session: id; time in milliseconds since it was opened; time in milliseconds since its last request; 0 if it is live,
--   1 if the lease of a claim has expired and it has made no request since, 2 if its process is gone; card
-- Returns `true` if the lease of a claim of a session has expired, and the session has made no request since.
local function is_suspect(session)
  for epoch in string.gmatch(session.suspects, '%d+') do
    if call('HGET', CLAIMS, epoch .. 's') == '1' then return true end
  end
  return false
end

local limit = tonumber(ARGV[2])
local first = ARGV[1] == '' and '-' or '(' .. card_position(ARGV[1]) .. '\255\255'
local members, workers, last = call('ZRANGEBYLEX', CARDS, first, '+', 'LIMIT', 0, limit + 1), {}, ''
for i = 1, math.min(#members, limit) do
  local id = string.match(sub(members[i], 1, 20), '^0*(%d+)$')
  local session = id and find_session(id)
  last = id or last
  -- A card without a session is left out. Maintenance removes it.
  if session and #members[i] >= 26 then
    local state = is_gone(session) and 2 or is_suspect(session) and 1 or 0
    local opened = number_at('>I6', members[i], 21)
    workers[#workers + 1] = { id, math.max(now - opened, 0), math.max(now - session.at, 0), state, sub(members[i], 27) }
  end
end
return { #members > limit and last or '', unpack(workers) }
