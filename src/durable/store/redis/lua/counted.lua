-- The number of sessions of each set, which is the field n<set> of `routes`.
--
-- Maintenance finds a number that is wrong. It looks at a page of sessions in each pass, and notes in the field `seen` of
-- `meta` the sets that have a session: so it knows at the end of a round which have none. The field is absent between
-- rounds.
--
-- Needs: session.

-- Counts the sessions of each set. With thousands of them, this takes longer than a script should: it is for a number
-- that is known to be wrong.
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

-- Returns whether a set is one of some, of 8 bytes each.
local function is_among(sets, set)
  for at = 1, #sets, 8 do
    if sub(sets, at, at + 7) == set then return true end
  end
  return false
end

-- Notes that a session of a set is opened: a round that has begun may be past it.
local function note_opened(set)
  local seen = call('HGET', META, 'seen')
  if seen and not is_among(seen, set) then call('HSET', META, 'seen', seen .. set) end
end

-- Adds to the number of sessions of a set, and returns it. If the number cannot be read, the sessions are counted.
local function count_session(set, by)
  local is_counted, n = pcall(call, 'HINCRBY', ROUTES, 'n' .. set, by)
  if is_counted then return n end
  n = sessions_of_sets()[set] or 0
  call('HSET', ROUTES, 'n' .. set, n)
  return n
end
