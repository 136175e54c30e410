-- Describes workers, from their cards and their sessions.
--
-- Needs: session, liveness, cards.
-- Defines: worker_of, each_card.

-- Returns `true` if the lease of a claim of a session has expired, and the session has made no request since.
local function is_suspect(session)
  for epoch in string.gmatch(session.suspects, '%d+') do
    if call('HGET', CLAIMS, epoch .. 's') == '1' then return true end
  end
  return false
end

-- Returns the description of the worker of a session, given its card, or nil if the session is lost: id; time in milliseconds since it was
-- opened; time in milliseconds since its last request; 0 if it is live, 1 if the lease of a claim has expired and it has made no request
-- since, 2 if its process is gone; card.
local function worker_of(id, member)
  local session = find_session(id)
  if not session then return nil end
  local state = is_gone(session) and 2 or is_suspect(session) and 1 or 0
  local opened = number_at('>I6', member, 21)
  return { id, math.max(now - opened, 0), math.max(now - session.at, 0), state, sub(member, 27) }
end

-- Passes the cards of at most `limit` sessions to `add`, with the ids of the sessions, beginning after `first`, a bound of the sorted set.
-- Returns the last session, and `true` if there are more. Cards that name no session do not count, since no page could begin after them.
-- Maintenance removes these, and cards of lost sessions.
local function each_card(first, limit, add)
  local seen, last = 0, ''
  while true do
    local members = call('ZRANGEBYLEX', CARDS, first, '+', 'LIMIT', 0, limit + 1)
    for _, member in ipairs(members) do
      local id = #member >= 26 and string.match(sub(member, 1, 20), '^0*(%d+)$')
      if id and seen == limit then return last, true end
      if id then
        add(id, member)
        seen, last = seen + 1, id
      end
      first = '(' .. member
    end
    if #members <= limit then return last, false end
  end
end
