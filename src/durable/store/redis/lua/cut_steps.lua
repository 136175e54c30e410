-- Replays a task from a step: removes the step and all later ones, and adds a step that records this. Its name is `replay:` and the number
-- of the first removed step. If the same step is named again before the task has stored it, only the last nonce of the record changes.
--
-- Needs no other part.
-- Undo: cut_steps.
-- Defines: steps_from, write_cut.

-- Finds the effect of a replay from a step. The status of the task is `dead`, `delayed`, `waiting` or `running`. Returns one of:
--
-- - The letter of the answer, if nothing changes: `y` if this replay has happened before, as its nonce shows, `n` if the task is running,
--   `m` if it has no such step, `s` if it was replayed from this step and still waits, or `d` if an earlier step is lost: the next run
--   would repeat it.
-- - `nil`, and the steps that are removed.
-- - `nil`, `nil`, and the record of the last replay with the new nonce, as a row: the task was replayed from this step, and has not stored
--   it since. No run ever stores a record, so a step that is a record itself counts as not stored, although the new record has its name.
local function steps_from(id, step, first, nonce, status)
  local key = STEPS .. ':' .. id
  local rows, found, last, last_number = call('HGETALL', key), nil, nil, 0
  for i = 1, #rows, 2 do
    local number = rows[i] ~= '' and #rows[i + 1] >= STEP_VALUE - 1 and number_at('>I4', rows[i + 1]) or 0
    if rows[i] == first and number > 0 then found = number end
    if number > 0 and sub(rows[i], 1, 7) == 'replay:' then
      local first_nonce = sub(rows[i + 1], STEP_VALUE, REPLAY_NONCE_END)
      local last_nonce = sub(rows[i + 1], REPLAY_LAST_NONCE, REPLAY_LAST_NONCE_END)
      if nonce == first_nonce or nonce == last_nonce then return 'y' end
      if number > last_number then last, last_number = i, number end
    end
  end
  if status == 'running' then return 'n' end
  local is_same = last and status ~= 'dead' and sub(rows[last + 1], REPLAY_STEP) == step
  if not found or is_same and sub(step, 1, 7) == 'replay:' then
    if not is_same or status == 'waiting' then return is_same and 's' or 'm' end
    local before = rows[last + 1]
    return nil, nil, { key = key, name = rows[last], row = sub(before, 1, REPLAY_NONCE_END) .. nonce .. step, before = before }
  end
  local cut = { id = id, key = key, rows = rows, removed = {}, kept = 0, count = call('HGET', STEPS, id) }
  local name = 'replay:' .. string.format('%.0f', found)
  local record = nonce .. nonce .. step
  local size = #name + #record
  for i = 1, #rows, 2 do
    -- Rows that cannot be read are removed, too.
    local is_kept = #rows[i + 1] >= STEP_VALUE - 1 and number_at('>I4', rows[i + 1]) < found
    if rows[i] ~= '' and is_kept then
      cut.kept, size = cut.kept + 1, size + #rows[i] + #rows[i + 1] - STEP_VALUE + 1
    elseif rows[i] ~= '' then
      cut.removed[#cut.removed + 1] = rows[i]
    end
  end
  if cut.kept < found - 1 then return 'd' end
  -- The task waits for no steps any more.
  cut.name, cut.added = name, { name, pack('>I4I6', found, now) .. record, '', pack('>I4I4', 0, size) }
  return nil, cut
end

-- A number of steps that is too large would make some seem to be lost, so it is lowered first and raised last.
local function write_cut(cut)
  local key, removed = cut.key, cut.removed
  call('HSET', STEPS, cut.id, pack('>I4', cut.kept))
  for first = 1, #removed, 1000 do
    call('HDEL', key, unpack(removed, first, math.min(first + 999, #removed)))
  end
  call('HSET', key, unpack(cut.added))
  call('HSET', STEPS, cut.id, pack('>I4', cut.kept + 1))
end
