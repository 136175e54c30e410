-- Removes a step of a task and all later ones, and adds a step that records this: see `StepKind::Replay`.
--
-- Undo: cut_steps.

-- Returns what changes, or nil and a letter: `m` if the task has no such step, `s` if the removal of this step is the last that has happened
-- to a task that is not a dead letter, or `d` if an earlier step is lost: the next run would repeat it.
local function cut_from(id, step, is_dead)
  local key = STEPS .. ':' .. id
  local rows, found, last, last_number = call('HGETALL', key), nil, nil, 0
  for i = 1, #rows, 2 do
    local number = rows[i] ~= '' and #rows[i + 1] >= STEP_VALUE - 1 and number_at('>I4', rows[i + 1]) or 0
    if rows[i] == step and number > 0 then found = number end
    if number > last_number then last, last_number = i, number end
  end
  if not found then
    local is_same = last and not is_dead and sub(rows[last], 1, 7) == 'replay:' and sub(rows[last + 1], STEP_VALUE) == step
    return nil, is_same and 's' or 'm'
  end
  local cut = { id = id, key = key, rows = rows, removed = {}, kept = 0, count = call('HGET', STEPS, id) }
  local name = 'replay:' .. string.format('%.0f', found)
  local size = #name + #step
  for i = 1, #rows, 2 do
    -- Rows that cannot be read are removed, too.
    local is_kept = #rows[i + 1] >= STEP_VALUE - 1 and number_at('>I4', rows[i + 1]) < found
    if rows[i] ~= '' and is_kept then
      cut.kept, size = cut.kept + 1, size + #rows[i] + #rows[i + 1] - STEP_VALUE + 1
    elseif rows[i] ~= '' then
      cut.removed[#cut.removed + 1] = rows[i]
    end
  end
  if cut.kept < found - 1 then return nil, 'd' end
  -- The task waits for no steps any more.
  cut.name, cut.added = name, { name, pack('>I4I6', found, now) .. step, '', pack('>I4I4', 0, size) }
  return cut
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
