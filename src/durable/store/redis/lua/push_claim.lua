-- Claims tasks for an idle session right after they were stored, and pushes the claim to the session. So a task starts one round trip
-- earlier than if the session were woken. The session's row names the claim as one that may not have arrived; a worker that may have
-- missed messages asks for it: see `pushed_claims.lua`. If a command fails, the claim is undone, and sessions are woken.
--
-- The message is sent last, and only if this server has a connection that receives it. A message without a receiver here may still be
-- received elsewhere, since a replica of this server passes it on. If its claim were undone, the task would run twice.
--
-- Only the session that went idle last is considered, and only if it accepts all of the tasks.
--
-- Needs: session, lists, epochs.
-- Undo: push_claim.
-- Returns: a function that claims new entries for an idle session.

-- Returns `true` if the tasks are plain: their payloads are in their entries, and they have no queue, key or group.
local function are_plain(entries)
  for _, entry in ipairs(entries) do
    if byte(entry, ENTRY_FLAGS) ~= 1 then return false end
  end
  return (tonumber(meta[5]) or call('HLEN', TOMBSTONES)) == 0
end

-- Returns `true` if claims may be pushed to the session. If it has not confirmed an earlier one for a second, its process may be dead or
-- stopped, which the server does not detect at once.
local function accepts(session)
  if not session or #session.first ~= 6 or session.set ~= plain_set then return false end
  local receivers = redis.pcall('PUBSUB', NUMSUB, BASE .. 'client:' .. session.client)
  if receivers.err or receivers[2] == 0 then return false end
  local oldest = string.match(session.undelivered, 'p(%d+) ')
  local owner = oldest and call('HGET', CLAIMS, oldest .. 'o')
  return not owner or #owner < OWNER_SESSION or now - number_at('>I6', owner, OWNER_CLAIMED_AT) < PUSH_CONFIRM_TIME
end

-- The message: `p`, length of the session 1, session, epoch 16, time 6, 1 if the session is still idle, else 0; and for each entry:
-- length 4, entry.
local function message(id, epoch, is_idle, entries)
  local parts = { 'p', char(#id), id, epoch, pack('>I6', now), char(is_idle and 1 or 0) }
  for _, entry in ipairs(entries) do
    parts[#parts + 1] = pack('>I4', #entry)
    parts[#parts + 1] = entry
  end
  return concat(parts)
end

-- Claims these entries, the only ones of the main list, for an idle session.
local function claim_for(idle, score, session, entries)
  local key, id, left = IDLE .. ':' .. plain_set, sub(idle, 9), score % 1 * 1024 - #entries
  local lease, ids, rows = number_at('>I6', session.first), {}, {}
  local last, packed_epochs = next_epochs(micros, 1)
  local epoch = string.format('%016.0f', last)
  for i, entry in ipairs(entries) do
    ids[i] = sub(entry, 1, ENTRY_ID_END)
    rows[2 * i - 1], rows[2 * i] = ids[i], epoch .. entry
  end
  state.transaction = {
    undo = 'push_claim', key = key, member = idle, score = score, session = id, row = session.row, entries = entries, ids = ids,
    epoch = epoch,
  }
  if left > 0 then call('ZADD', key, score - #entries / 1024, idle) else call('ZREM', key, idle) end
  session.undelivered = session.undelivered .. 'p' .. epoch .. ' '
  save_session(id, session)
  call('HSET', RUNNING, unpack(rows))
  local owner = session.client .. pack('>I6I6', lease, now) .. id
  call('HSET', CLAIMS, epoch, concat(ids), epoch .. 'n', #ids, epoch .. 'o', owner)
  call('ZADD', LEASE, now + lease, epoch)
  call('HSET', META, 'epoch', packed_epochs)
  call('LTRIM', READY, #entries, -1)
  local reached = redis.pcall(PUBLISH, BASE .. 'client:' .. session.client, message(id, epoch, left > 0, entries))
  if type(reached) ~= 'number' then error(reached) end
end

-- Claims the entries, which are the only ones of the main list, for the session that went idle last, if it accepts them. Returns `true` if
-- no session need be woken: the claim was pushed, or no session is idle.
return function(entries)
  -- The tasks are stored. A failure from here on does not change that: the script then runs again, and wakes sessions.
  state.name, state.transaction, state.skipped = 'push', nil, state.skipped or {}
  local key = IDLE .. ':' .. plain_set
  local idle, score = unpack(call('ZREVRANGE', key, 0, 0, 'WITHSCORES'))
  score = tonumber(score)
  local session = idle and score % 1 * 1024 >= #entries and are_plain(entries) and find_session(sub(idle, 9))
  local is_accepted = accepts(session)
  if is_accepted then claim_for(idle, score, session, entries) end
  state.name, state.transaction = nil, nil
  return is_accepted or not idle
end
