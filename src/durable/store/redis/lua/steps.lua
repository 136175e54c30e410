-- The steps of tasks. While `meta` has the field `steps`, tasks may have some. If it is 2, there may be notes: see `children.lua`.
--
-- `steps:<id>` is a hash for each task that has steps, or waits for some. It has a row for each step, by name: number of the step 4, time at
-- which it was stored 6, value. The row with the empty name: number of steps that makes the task due while it is delayed (0: no number does)
-- 4, size of the names and values in bytes 4, a description of the steps for which it waits. The number of the other rows is the number of
-- steps; nothing else determines it.
--
-- `steps` has a row for each of these tasks, by id: a number of steps that the task has had 4. If it has fewer, some are lost.
--
-- Reads: steps.

-- Returns the number of steps in a hash, the number for which the task waits, the size of the steps, and a description of what the task waits
-- for, given the row with the empty name.
local function totals_of(key, row)
  local n = call('HLEN', key) - (row and 1 or 0)
  if not row or #row < 8 then return n, 0, 0, '' end
  return n, number_at('>I4', row), number_at('>I4', row, 5), sub(row, 9)
end

-- Returns the number of steps of a task, the number for which it waits, the size of its steps, and a description of what it waits for.
local function steps_of(id)
  local key = STEPS .. ':' .. id
  return totals_of(key, call('HGET', key, ''))
end

-- Records that tasks may have steps. The first write of a script that a full server refuses.
local function use_steps()
  if meta[8] then return end
  call('HSET', META, 'steps', 1)
  meta[8] = '1'
end

-- Adds the task to those that have steps.
local function add_to_steps(id, n)
  use_steps()
  call('HSET', STEPS, id, pack('>I4', n))
end

-- Stores a step. Returns `s` if it was stored, `x` if the task has too many, or `f` and the value if the task has a step with this name. A task
-- that runs waits for no steps any more. With `counts`, the caller writes the numbers of steps in it to `steps`.
local function add_step(id, name, value, is_running, counts)
  local key = STEPS .. ':' .. id
  local found = call('HMGET', key, name, '')
  local n, waits, size, waits_for = totals_of(key, found[2])
  local answer, added = 's', #name + #value
  if found[1] then
    -- A request that has failed may not have written the number.
    answer = 'f' .. sub(found[1], STEP_VALUE)
  elseif n >= MAX_STEPS or size + added > MAX_TOTAL_STEP_BYTES then
    return 'x'
  else
    n = n + 1
    use_steps()
    -- A number that is written too early would make a step seem to be lost.
    call('HSET', key, name, pack('>I4I6', n, now) .. value, '', pack('>I4I4', is_running and 0 or waits, size + added) .. waits_for)
  end
  if counts then counts[#counts + 1], counts[#counts + 2] = id, pack('>I4', n) else add_to_steps(id, n) end
  return answer
end

-- Returns the names of the hashes of tasks: that of the first one, and the others.
local function hashes_of(ids)
  local others = {}
  for i = 2, #ids do others[i - 1] = STEPS .. ':' .. ids[i] end
  return STEPS .. ':' .. ids[1], others
end

-- Returns for each task its number of steps, 4 bytes, and the number for which it still waits, 4 bytes.
local function numbers_of_steps(ids)
  local numbers, rows, before = {}, 0, call('HMGET', STEPS, unpack(ids))
  for i = 1, #ids do
    if before[i] then rows = rows + 1 end
  end
  -- Most tasks have no steps. If rows of `steps` are lost, each task is looked at.
  local key, others = hashes_of(ids)
  local is_sound = call('EXISTS', key, unpack(others)) == rows
  for i, id in ipairs(ids) do
    local n, waits = 0, 0
    if before[i] or not is_sound then n, waits = steps_of(id) end
    numbers[i] = pack('>I4I4', math.max(n, #(before[i] or '') == 4 and number_at('>I4', before[i]) or 0), waits)
  end
  return concat(numbers)
end

-- Removes the steps of tasks that have ended. If a command fails here, rows may remain. `add_tasks.lua` removes them if another task gets
-- the id, and so does maintenance.
local function remove_steps(ids)
  if not meta[8] or #ids == 0 then return end
  local key, others = hashes_of(ids)
  call('UNLINK', key, unpack(others))
  call('HDEL', STEPS, unpack(ids))
end
