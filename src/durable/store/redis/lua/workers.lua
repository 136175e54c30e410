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

local limit, workers, last = tonumber(ARGV[2]), {}, ''

-- Adds a worker, given its card.
local function add(member, id)
  local session = find_session(id)
  if not session then return end
  local state = is_gone(session) and 2 or is_suspect(session) and 1 or 0
  local opened = number_at('>I6', member, 21)
  workers[#workers + 1] = { id, math.max(now - opened, 0), math.max(now - session.at, 0), state, sub(member, 27) }
end

-- Examines cards until the page has `limit` sessions. Returns `true` if there are more. Cards that name no session do not count, since
-- no page could begin after them. Maintenance removes these, and cards of lost sessions.
local function examine(first)
  local seen = 0
  while true do
    local members = call('ZRANGEBYLEX', CARDS, first, '+', 'LIMIT', 0, limit + 1)
    for _, member in ipairs(members) do
      local id = #member >= 26 and string.match(sub(member, 1, 20), '^0*(%d+)$')
      if id and seen == limit then return true end
      if id then
        add(member, id)
        seen, last = seen + 1, id
      end
      first = '(' .. member
    end
    if #members <= limit then return false end
  end
end

local more = examine(ARGV[1] == '' and '-' or '(' .. card_position(ARGV[1]) .. '\255\255')
return { more and last or '', unpack(workers) }
