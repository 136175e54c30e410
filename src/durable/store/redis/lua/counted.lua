-- The number of sessions of each set, which is the field n<set> of `routes`.
--
-- Needs: session.

-- Counts the sessions of each set.
local function sessions_of_sets()
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

-- Adds to the number of sessions of a set, and returns it. If the number cannot be read, the sessions are counted.
local function count_session(set, by)
  local is_counted, n = pcall(call, 'HINCRBY', ROUTES, 'n' .. set, by)
  if is_counted then return n end
  n = sessions_of_sets()[set] or 0
  call('HSET', ROUTES, 'n' .. set, n)
  return n
end
