-- Undoes the transaction in which a command has failed. This file and the others in this folder run only then, after the
-- function `main`, with the error in `failure`. See `transaction.lua`.
--
-- Needs no other part. Uses the table `state` and the error `failure`.
-- Defines: u, undo, text_of, try, try_all, every_second, restore_errors, restore_permits, reversed, has_entries, restore_session,
--   remove_messages, remove_pushed.
--
-- ARGV[1] -> session of the request, if the transaction changes one
local u, undo = state.transaction, {}

-- All that a transaction of groups has written is undone below: see `groups.lua`.
function undo.nothing() end

-- Returns the text of an error. Redis 6.2 puts the position in the script before it.
local function text_of(error)
  local text = type(error) == 'table' and error.err or tostring(error)
  return (string.gsub(text, '^@?user_script:%s?%d+:%s?%-?', ''))
end

-- Runs a command. If the key holds a value of another type, the transaction has written nothing there.
local function try(...)
  local answer = redis.pcall(...)
  local failed = type(answer) == 'table' and answer.err
  if failed and string.sub(text_of(answer), 1, 9) ~= 'WRONGTYPE' then state.is_partial = true end
  return answer
end

local function try_all(command, key, some)
  if #some > 0 then try(command, key, unpack(some)) end
end

-- Returns every second argument, from the first or the second on.
local function every_second(all, from)
  local some = {}
  for i = from, #all, 2 do some[#some + 1] = all[i] end
  return some
end

-- Restores rows of `errors` to those in `before`, where false stands for a missing row.
local function restore_errors(ids, before)
  for i, id in ipairs(ids) do
    if before[i] then try('HSET', ERRORS, id, before[i]) else try('HDEL', ERRORS, id) end
  end
end

-- Gives permits of queues and groups back to tasks that run after all.
local function restore_permits(permits)
  for holder, ids in pairs(permits) do
    local key = PERMITS .. ':' .. holder
    try_all('SADD', key, ids)
  end
end

local function reversed(entries)
  local some = {}
  for i = #entries, 1, -1 do some[#some + 1] = entries[i] end
  return some
end

-- Returns `true` if a list, or the sublist of a group, has these entries from an index on, and did not have them before. `before` is
-- the previous length, or nil if it was not read.
local function has_entries(key, group, from, entries, before)
  local there = redis.pcall('LRANGE', key, from, from + #entries - 1)
  if there.err or #there ~= #entries then return false end
  for i = 1, #entries do if there[i] ~= entries[i] then return false end end
  if before then return redis.pcall('LLEN', key) == before + #entries end
  -- A cancelled or replaced task may have left an equal entry, but then there is a tombstone.
  local tombstone = string.sub(entries[1], 1, ENTRY_ID_END) .. string.sub(entries[1], ENTRY_KIND, ENTRY_KIND_END) .. group
  return redis.pcall('HEXISTS', TOMBSTONES, tombstone) ~= 1
end

-- Restores the row of the session that has sent the request.
local function restore_session()
  local row = redis.pcall('HGET', SESSIONS, ARGV[1])
  if type(row) == 'string' and row ~= u.session.row then try('HSET', SESSIONS, ARGV[1], u.session.row) end
end

-- Removes the messages about tasks that have not ended after all. Those about earlier transactions are still sent.
local function remove_messages()
  for _, messages in pairs(state.messages or {}) do
    local ids = {}
    for i, message in ipairs(messages) do ids[i] = string.sub(message, 1, 16) end
    local alive = #ids > 0 and redis.pcall('HMGET', ALIVE, unpack(ids)) or {}
    for i = #messages, 1, -1 do
      if alive.err or alive[i] then table.remove(messages, i) end
    end
  end
end

-- Removes entries that were added to the ends of lists.
local function remove_pushed(bundles)
  for _, bundle in ipairs(bundles or {}) do
    local key, n = bundle.key, #bundle.entries
    if bundle.is_pushed or has_entries(key, bundle.group or '', -n, bundle.entries, bundle.before) then try('LTRIM', key, 0, -n - 1) end
  end
end
