-- Undoes the unit in which a command has failed. This and the other files here run only then, behind the
-- function that is the rest of the script, with `failure`; see `unit.lua`.
local u, undo = state.unit, {}

-- Redis 6.2 writes the place of an error before it.
local function text_of(error)
  local text = type(error) == 'table' and error.err or tostring(error)
  return (string.gsub(text, '^@?user_script:%s?%d+:%s?%-?', ''))
end

-- Runs a command. If the key holds something else, the unit has written nothing there.
local function try(...)
  local answer = redis.pcall(...)
  local failed = type(answer) == 'table' and answer.err
  if failed and string.sub(text_of(answer), 1, 9) ~= 'WRONGTYPE' then state.is_half = true end
  return answer
end

local function try_all(command, key, some)
  if #some > 0 then try(command, key, unpack(some)) end
end

-- Every second of some arguments, from the first or the second on.
local function every_second(all, from)
  local some = {}
  for i = from, #all, 2 do some[#some + 1] = all[i] end
  return some
end

-- Restores rows of `errors`: of some ids, those that were there before, or false.
local function restore_errors(ids, before)
  for i, id in ipairs(ids) do
    if before[i] then try('HSET', ERRORS, id, before[i]) else try('HDEL', ERRORS, id) end
  end
end

local function reversed(entries)
  local some = {}
  for i = #entries, 1, -1 do some[#some + 1] = entries[i] end
  return some
end

-- Returns whether a list has these entries from one place on, all of tasks that were not there before.
local function has_entries(key, from, entries)
  local there = redis.pcall('LRANGE', key, from, from + #entries - 1)
  if there.err or #there ~= #entries then return false end
  for i = 1, #entries do if there[i] ~= entries[i] then return false end end
  -- The entry of a cancelled task may be the same, but then there is its tombstone.
  local stone = string.sub(entries[1], 1, 16) .. string.sub(entries[1], 47, 54)
  return redis.pcall('HEXISTS', TOMBSTONES, stone) ~= 1
end

-- Restores the row of the session whose request this is.
local function restore_session()
  local row = redis.pcall('HGET', SESSIONS, ARGV[1])
  if type(row) == 'string' and row ~= u.session.row then try('HSET', SESSIONS, ARGV[1], u.session.row) end
end

-- Removes the messages about tasks that have not ended after all. Those about the tasks of earlier units are still sent.
local function take_messages_back()
  for _, told in pairs(state.notices or {}) do
    local ids = {}
    for i, message in ipairs(told) do ids[i] = string.sub(message, 1, 16) end
    local alive = #ids > 0 and redis.pcall('HMGET', ALIVE, unpack(ids)) or {}
    for i = #told, 1, -1 do
      if alive.err or alive[i] then table.remove(told, i) end
    end
  end
end

-- Takes back what was pushed to the ends of lists.
local function take_back_all(groups)
  for _, group in ipairs(groups or {}) do
    local key, n = group.key, #group.entries
    if group.is_pushed or has_entries(key, -n, group.entries) then try('LTRIM', key, 0, -n - 1) end
  end
end
