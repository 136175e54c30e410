-- A card describes the worker of a session that claims. It is written when the session is opened, and removed with it. A member of `cards`:
-- session, as 20 digits; time at which the session was opened 6; card, which scripts do not read. All members have the score 0, so Redis
-- sorts them by their bytes, which begin with the session.
--
-- Needs no other part.
-- Defines: card_position, remove_card.

-- Returns the first bytes of the member of a session.
local function card_position(session) return string.rep('0', 20 - #session) .. session end

local function remove_card(session)
  local first = card_position(session)
  call('ZREMRANGEBYLEX', CARDS, '[' .. first, '(' .. first .. '\255\255')
end
