-- The steps of tasks. While `meta` has the field `steps`, tasks may have some.
--
-- `steps:<id>` is a hash for each task that has steps, or waits for some. It has a row for each step, by name: number of the step 4, time at
-- which it was stored 6, value. The row with the empty name: number of steps that makes the task due while it is delayed (0: no number does)
-- 4, size of the names and values in bytes 4, a description of the steps for which it waits. The number of the other rows is the number of
-- steps; nothing else determines it.
--
-- `steps` has a row for each of these tasks, by id: a number of steps that the task has had 4. If it has fewer, some are lost.
--
-- Reads: steps.

-- Returns the number of steps of a task, the number for which it waits, the size of its steps, and a description of what it waits for.
local function steps_of(id)
  local key = STEPS .. ':' .. id
  local row = call('HGET', key, '')
  local n = call('HLEN', key) - (row and 1 or 0)
  if not row or #row < 8 then return n, 0, 0, '' end
  return n, number_at('>I4', row), number_at('>I4', row, 5), sub(row, 9)
end

-- Adds the task to those that have steps. The first write of a script that a full server refuses.
local function add_to_steps(id, n)
  if not meta[8] then
    call('HSET', META, 'steps', 1)
    meta[8] = '1'
  end
  call('HSET', STEPS, id, pack('>I4', n))
end

-- Stores a step. Returns `s` if it was stored, `x` if the task has too many, or `f` and the value if the task has a step with this name.
local function add_step(id, name, value)
  local key = STEPS .. ':' .. id
  local row = call('HGET', key, name)
  local n, waits, size, waits_for = steps_of(id)
  -- A request that has failed may not have written the number.
  if row then add_to_steps(id, n) end
  if row then return 'f' .. sub(row, STEP_VALUE) end
  size = size + #name + #value
  if n >= MAX_STEPS or size > MAX_TOTAL_STEP_BYTES then return 'x' end
  -- A number that is written too early would make a step seem to be lost.
  if n == 0 then add_to_steps(id, 0) end
  call('HSET', key, name, pack('>I4I6', n + 1, now) .. value, '', pack('>I4I4', waits, size) .. waits_for)
  call('HSET', STEPS, id, pack('>I4', n + 1))
  return 's'
end

-- Returns the numbers of steps of tasks, 4 bytes each.
local function numbers_of_steps(ids)
  local numbers, before = {}, call('HMGET', STEPS, unpack(ids))
  for i, id in ipairs(ids) do
    numbers[i] = pack('>I4', math.max(steps_of(id), #(before[i] or '') == 4 and number_at('>I4', before[i]) or 0))
  end
  return concat(numbers)
end

-- Removes the steps of tasks that have ended. If a command fails here, rows may remain. `add_tasks.lua` removes them if another task gets
-- the id, and so does maintenance.
local function remove_steps(ids)
  if not meta[8] or #ids == 0 then return end
  for _, id in ipairs(ids) do
    local key = STEPS .. ':' .. id
    call('UNLINK', key)
  end
  call('HDEL', STEPS, unpack(ids))
end
