-- Cards: what sessions that claim say about their workers. All members of `cards` have the score 0, so they are in the order of their
-- bytes: session, as 20 digits; time at which the session was opened 6; card, which scripts do not read. A card is written when the
-- session is opened, and removed with it.

-- Returns the first bytes of the member of a session.
local function card_position(session) return string.rep('0', 20 - #session) .. session end

local function remove_card(session)
  local first = card_position(session)
  call('ZREMRANGEBYLEX', CARDS, '[' .. first, '(' .. first .. '\255\255')
end
