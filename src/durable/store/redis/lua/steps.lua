-- The steps of tasks. While `meta` has the field `steps`, tasks may have some. If it is 2, there may be notes: see `children.lua`.
--
-- `steps:<id>` is a hash for each task that has steps, or waits for some. It has a row for each step, by name: number of the step 4, time
-- at which it was stored 6, value. The row with the empty name: number of steps that makes the task due while it is delayed (0: no number
-- does) 4, size of the names and values in bytes 4, a description of what the task waits for. The number of the other rows is the
-- number of steps; nothing else determines it.
--
-- `steps` has a row for each of these tasks, by id: a number of steps that the task has had 4. If it has fewer, some are lost.
--
-- Needs no other part.
-- Reads: steps.
-- Defines: steps_of, unless_of_other_type, number_in, add_to_steps, add_step, numbers_of_steps, remove_steps.

-- Returns the number of steps in a hash, the number for which the task waits, the size of the steps, and a description of what the task
-- waits for, given the row with the empty name.
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

-- Returns `true` if a command has failed because the steps of a task are a value of another type. Maintenance removes it. Until then, other
-- tasks are not affected.
local function is_of_other_type(problem)
  return string.find(type(problem) == 'table' and problem.err or problem, 'WRONGTYPE', 1, true) ~= nil
end

-- Calls a function that reads or writes the steps of a task, and returns `true` and its results. Returns `false` if the steps are a value
-- of another type. Scripts that undo nothing do not call this, since an error that is raised again has another form.
local function unless_of_other_type(run, ...)
  local results = { pcall(run, ...) }
  if results[1] then return unpack(results) end
  if not is_of_other_type(results[2]) then error(results[2], 0) end
  return false
end

-- Returns the number in a row of `steps`.
local function number_in(row) return row and #row == 4 and number_at('>I4', row) or 0 end

-- Records that tasks may have steps. The first write of a script that a full server refuses.
local function use_steps()
  if meta[8] then return end
  call('HSET', META, 'steps', 1)
  meta[8] = '1'
end

-- Writes the row of a task in `steps`.
local function add_to_steps(id, n)
  use_steps()
  call('HSET', STEPS, id, pack('>I4', n))
end

-- Stores a step. Returns `s` if it was stored, `x` if the task has too many, `f` and the value if the task has a step with this name, or
-- `e` if its steps cannot be read. Also returns the row that the caller then writes to `steps`, given that row now. Steps that are lost
-- still count in it. A task that runs waits for no steps any more.
local function add_step(id, name, value, row, is_running)
  local key = STEPS .. ':' .. id
  local is_read, found = pcall(call, 'HMGET', key, name, '')
  -- Maintenance finds the damage by the row.
  if not is_read and is_of_other_type(found) then return 'e', row or pack('>I4', 1) end
  if not is_read then found = call('HMGET', key, name, '') end
  local n, waits, size, waits_for = totals_of(key, found[2])
  local had, added = math.max(n, number_in(row)), #name + #value
  -- A request that has failed may not have written the number.
  if found[1] then return 'f' .. sub(found[1], STEP_VALUE), pack('>I4', had) end
  if n >= MAX_STEPS or size + added > MAX_TOTAL_STEP_BYTES then return 'x', row end
  use_steps()
  -- A number that is written too early would make a step seem to be lost.
  call('HSET', key, name, pack('>I4I6', n + 1, now) .. value, '', pack('>I4I4', is_running and 0 or waits, size + added) .. waits_for)
  return 's', pack('>I4', had + 1)
end

-- Returns the names of the hashes of tasks: that of the first one, and the others.
local function hashes_of(ids)
  local others = {}
  for i = 2, #ids do others[i - 1] = STEPS .. ':' .. ids[i] end
  return STEPS .. ':' .. ids[1], others
end

-- Returns for each task that was claimed its number of steps, 4 bytes, and the number for which it still waits, 4 bytes. This does not
-- fail, since the worker would only repeat its turn. A task whose steps cannot be read has at least one, so its run looks for them, and
-- fails.
local function numbers_of_steps(ids)
  local numbers, rows, is_read, before = {}, 0, pcall(call, 'HMGET', STEPS, unpack(ids))
  if not is_read then before = {} end
  for i = 1, #ids do
    if before[i] then rows = rows + 1 end
  end
  -- Most tasks have no steps. If rows of `steps` are lost, each task is looked at.
  local key, others = hashes_of(ids)
  local is_counted, found = pcall(call, 'EXISTS', key, unpack(others))
  local is_sound = is_counted and found == rows
  for i, id in ipairs(ids) do
    local n, waits = 0, 0
    if before[i] or not is_sound then
      is_read, n, waits = pcall(steps_of, id)
      if not is_read then n, waits = 1, 0 end
    end
    numbers[i] = pack('>I4I4', math.max(n, number_in(before[i])), waits)
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
