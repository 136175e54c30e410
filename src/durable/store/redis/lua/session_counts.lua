-- Counts the sessions of each set. The number is the field n<set> of `routes`.
--
-- Each pass of maintenance reads one page of sessions, and adds the sets that it finds to the field `seen` of `meta`.
-- At the end of a round over all pages, a set that is not in `seen` has no session, unless the server was restarted
-- meanwhile. Between rounds, the field is absent.
--
-- Needs: session.
-- Defines: count_sessions_by_set, contains_set, note_opened_set, add_sessions.

-- Counts the sessions of each set. With thousands of sessions, this takes longer than a script should take, so it is
-- called only if a number seems to be wrong.
local function count_sessions_by_set()
  local counts, cursor = {}, '0'
  repeat
    local page = call('HSCAN', SESSIONS, cursor, 'COUNT', 64)
    for i = 1, #page[2], 2 do
      local session = find_session(page[2][i])
      if session then counts[session.set] = (counts[session.set] or 0) + 1 end
    end
    cursor = page[1]
  until cursor == '0'
  return counts
end

-- Returns `true` if a string of set ids contains this set. A false match that spans two ids only delays the removal of
-- the set.
local function contains_set(sets, set) return string.find(sets, set, 1, true) ~= nil end

-- Records in `seen` that a session of a set is opened, since the current round may already have passed the page on which
-- the session is stored.
local function note_opened_set(set)
  local found = call('HGET', META, 'seen')
  if found and not contains_set(found, set) then call('HSET', META, 'seen', found .. set) end
end

-- Adds to the number of sessions of a set, and returns it. If the number cannot be read, the sessions are counted.
local function add_sessions(set, by)
  local is_counted, n = pcall(call, 'HINCRBY', ROUTES, 'n' .. set, by)
  if is_counted then return n end
  n = count_sessions_by_set()[set] or 0
  call('HSET', ROUTES, 'n' .. set, n)
  return n
end
