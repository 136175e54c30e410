-- Raises the layout of the store to the newest that this version knows, unless a live process with a session does not know
-- that layout. The script converts no data. If ARGV[1] is 0, it writes nothing, and only returns the layout and these processes.
--
-- Needs: session, lists, liveness.
-- KEYS: NONE, META, SESSIONS, READY, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS.
--
-- ARGV[1] -> 1 to raise the layout, 0 to write nothing
--
-- Output:
-- [1]   -> layout of the store before this request
-- [2]   -> newest layout that this version knows
-- [3..] -> descriptions of the processes that prevent the upgrade; none if the store has the newest layout
local function number_in(row) return tonumber(string.match(row or '', '^%d+$') or '') end

local found = number_in(meta[1]) or number_in(call('HGET', META, 'layout_copy')) or LAYOUT
local answer, seen, cursor = { found, LAYOUT }, {}, '0'
if number_in(meta[1]) == LAYOUT then return answer end
repeat
  local page = call('HSCAN', SESSIONS, cursor, 'COUNT', 64)
  for i = 1, #page[2], 2 do
    local session = find_session(page[2][i])
    if session and not is_gone(session) then
      local layout, process = string.match(session.process, '^(%d+) (.*)$')
      process = process or 'a process that cannot be named'
      if not seen[process] and tonumber(layout or '0') < LAYOUT then
        seen[process] = true
        answer[#answer + 1] = process
      end
    end
  end
  cursor = page[1]
until cursor == '0'
if #answer == 2 and ARGV[1] == '1' then call('HSET', META, 'layout', LAYOUT, 'layout_copy', LAYOUT) end
return answer
