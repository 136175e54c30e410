-- Collects the messages and event counts of a script. Clients are notified of the ends of tasks: a message contains the
-- state, as `status.lua` returns it, or an empty text, and then the client requests the status. If a transaction fails, its
-- messages are not sent.
--
-- `awaits` caches whether clients await tasks.
--
-- Needs no other part. Uses the table `state`: see `transaction.lua`.
-- Defines: has_watchers, MAX_NOTIFIED_BYTES, count, is_awaiting, notify, notify_watchers, flush.
local messages, awaits, has_watchers, counts = state.messages or {}, {}, nil, state.counts or {}
state.messages, state.counts = messages, counts
-- Larger states, alone or together, are not sent: clients request them.
local MAX_NOTIFIED_BYTES, bytes_left = 4096, 65536

local function count(what, n) counts[what] = (counts[what] or 0) + n end

-- Returns `true` if a client has requested a status lately. Others await no task, and get no message, so none is composed for them. No
-- script registers a client and ends tasks, so the answer is the same at any point of a script.
local function is_awaiting(client)
  local is_known = awaits[client]
  if is_known == nil then
    local asked = redis.pcall('ZSCORE', AWAITING, client) or '0'
    is_known = type(asked) == 'table' or tonumber(asked) + AWAITING_TIME > now
    awaits[client] = is_known
  end
  return is_known
end

local function notify(client, id, task_state)
  if not is_awaiting(client) then return end
  local of_client = messages[client]
  if not of_client then
    of_client = {}
    messages[client] = of_client
  end
  if #task_state > MAX_NOTIFIED_BYTES or #task_state > bytes_left then task_state = '' end
  bytes_left = bytes_left - #task_state
  of_client[#of_client + 1] = id .. pack('>I4', #task_state) .. task_state
end

-- Notifies the clients that have requested the status of tasks stored by others.
local function notify_watchers(ids, states)
  if has_watchers == nil then has_watchers = call('EXISTS', WATCHERS) == 1 end
  if not has_watchers or #ids == 0 then return end
  local rows, notified = call('HMGET', WATCHERS, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if rows[i] then
      notified[#notified + 1] = id
      for at = 1, #rows[i], 8 do notify(sub(rows[i], at, at + 7), id, states[i] or '') end
    end
  end
  if #notified > 0 then call('HDEL', WATCHERS, unpack(notified)) end
end

-- Sends the messages and adds the counts to the totals. This is the last step of a script.
local function flush()
  state.messages, state.counts = nil, nil
  for client, of_client in pairs(messages) do
    redis.pcall(PUBLISH, BASE .. 'client:' .. client, 'e' .. concat(of_client))
  end
  for what, n in pairs(counts) do
    local is_added, failure = pcall(call, 'HINCRBY', META, what, n)
    -- Maintenance removes an unreadable number. Until then, nothing is counted.
    local found = is_added or call('HGET', META, what) or '0'
    if not is_added and #found < 16 and string.find(found, '^-?%d+$') then error(failure) end
  end
end
