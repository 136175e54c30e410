-- The messages and counts of a script.
--
-- Clients get the ends of tasks: the answer of a status request, or an empty message, and then the client asks. If
-- a unit of a script fails, its messages are not sent.
--
-- Needs: base.
local notices, watched, counted = state.notices or {}, nil, state.counted or {}
state.notices, state.counted = notices, counted
-- Larger results, alone or together, are not sent: the clients that wait ask for them.
local MOST_TOLD, room_to_tell = 4096, 65536

local function count(what, n) counted[what] = (counted[what] or 0) + n end

local function tell(client, id, seen)
  local told = notices[client]
  if not told then
    told = {}
    notices[client] = told
  end
  if #seen > MOST_TOLD or #seen > room_to_tell then seen = '' end
  room_to_tell = room_to_tell - #seen
  told[#told + 1] = id .. pack('>I4', #seen) .. seen
end

-- Tells those who have asked about tasks of others.
local function tell_watchers(ids, seen)
  if watched == nil then watched = call('EXISTS', WATCHERS) == 1 end
  if not watched or #ids == 0 then return end
  local rows, over = call('HMGET', WATCHERS, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if rows[i] then
      over[#over + 1] = id
      for at = 1, #rows[i], 8 do tell(sub(rows[i], at, at + 7), id, seen[i] or '') end
    end
  end
  if #over > 0 then call('HDEL', WATCHERS, unpack(over)) end
end

-- Tells the clients, and writes what was counted: the last thing that a script does.
local function flush()
  state.notices, state.counted = nil, nil
  for client, told in pairs(notices) do
    -- A client that has not asked about a task for a while awaits none, and is not told.
    local asked = redis.pcall('ZSCORE', AWAITING, client) or '0'
    if type(asked) == 'table' or tonumber(asked) + AWAITING_FOR > now then
      redis.pcall('PUBLISH', BASE .. 'client:' .. client, 'e' .. concat(told))
    end
  end
  for what, n in pairs(counted) do
    local is_added, failure = pcall(call, 'HINCRBY', META, what, n)
    -- Maintenance removes a number that cannot be read. Until then, nothing is counted.
    local found = is_added or call('HGET', META, what) or '0'
    if not is_added and #found < 16 and string.find(found, '^-?%d+$') then error(failure) end
  end
end
