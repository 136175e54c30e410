-- Returns a page of the sessions that have a card, in the order of their ids.
--
-- Needs: worker_rows.
-- KEYS: NONE, META, SESSIONS, READY, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS, CLAIMS, CARDS.
--
-- ARGV[1] -> last session of the page before, or empty
-- ARGV[2] -> maximum number of sessions
--
-- Output:
-- [1]   -> last session of this page, or empty if no others follow
-- [2]   -> time in milliseconds since 1970
-- [3..] -> for each session: its description, see `worker_rows.lua`
local workers = {}
local first = ARGV[1] == '' and '-' or '(' .. card_position(ARGV[1]) .. '\255\255'
local last, more = each_card(first, tonumber(ARGV[2]), function(id, member) workers[#workers + 1] = worker_of(id, member) end)
return { more and last or '', now, unpack(workers) }
