-- Raises the layout of the store to the newest that this version knows, unless a live process with a session does not know
-- that layout. Nothing is converted.
--
-- Needs: session, lists, liveness.
-- KEYS: NONE, META, SESSIONS, READY, TOMBSTONES, IDLE, ROUTES, QUEUES, PERMITS, GROUPS.
--
-- Output: descriptions of the processes that prevent it; none if the store has this layout now
if tonumber(meta[1]) == LAYOUT then return {} end
local processes, seen, cursor = {}, {}, '0'
repeat
  local page = call('HSCAN', SESSIONS, cursor, 'COUNT', 64)
  for i = 1, #page[2], 2 do
    local session = find_session(page[2][i])
    if session and not is_gone(session) then
      local layout, process = string.match(session.process, '^(%d+) (.*)$')
      process = process or 'a process that cannot be named'
      if not seen[process] and tonumber(layout or '0') < LAYOUT then
        seen[process] = true
        processes[#processes + 1] = process
      end
    end
  end
  cursor = page[1]
until cursor == '0'
if #processes == 0 then call('HSET', META, 'layout', LAYOUT, 'layout_copy', LAYOUT) end
return processes
