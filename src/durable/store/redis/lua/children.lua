-- Tells tasks of the ends of their children: the end of a child is a step of its parent, `child:<id of the child>`.
--
-- The transaction that ends a child also writes a *note* of that. If the parent is in this partition, the script then stores the step, and
-- removes the note. Processes do the same for parents elsewhere, and if a command fails here: see `notes.rs`. While the field `steps` of
-- `meta` is 2, there may be such notes.
--
-- `notes` has by the id of a child: id of the parent 16, end of the child. An end is `d` and the output; `l` and the length 8 of an output
-- that is too large for a step; `x`, the number of the reason 1 and the error; or `c` if the child was cancelled.
--
-- Needs: entry, lists, steps.
-- Defines: children.
--
-- Few tasks have parents, so `children()` creates its functions on demand, and returns them in a table.
local made_children
local function children()
  if made_children then return made_children end

  local function end_of_done(output) return #output < MAX_STEP_BYTES and 'd' .. output or 'l\0\0\0\0' .. pack('>I4', #output) end

  local function end_of_dead(reason, error)
    local last = math.min(#error, MAX_ATTEMPT_ERROR_BYTES)
    -- No character is cut.
    while last < #error and math.floor(byte(error, last + 1) / 64) == 2 do last = last - 1 end
    return 'x' .. char(reason - 1) .. sub(error, 1, last)
  end

  -- Adds the note of a child that has ended.
  local function add_note(notes, child, parent, ending)
    if #parent == 16 then notes[#notes + 1], notes[#notes + 2] = child, parent .. ending end
  end

  -- Leaves out the notes of children that have one: the first end counts.
  local function new_notes(notes)
    if #notes == 0 then return notes end
    local ids, new = {}, {}
    for i = 1, #notes, 2 do ids[#ids + 1] = notes[i] end
    for i, note in ipairs(call('HMGET', NOTES, unpack(ids))) do
      if not note then new[#new + 1], new[#new + 2] = notes[2 * i - 1], notes[2 * i] end
    end
    return new
  end

  -- Returns the name of the step that records the end of a child.
  local function child_step(child)
    return string.format('child:%08x-%04x-%04x-%04x-%04x%08x', number_at('>I4I2I2I2I2I4', child))
  end

  -- Returns an end without its output, or its error, unless this number of bytes suffices for it.
  local function fitted(ending, room)
    local kind = sub(ending, 1, 1)
    if #ending <= room or kind ~= 'd' and kind ~= 'x' then return ending end
    return kind == 'x' and sub(ending, 1, 2) or 'l\0\0\0\0' .. pack('>I4', #ending - 1)
  end

  -- If a task waits for as many steps as it has now, the wait is over: if it is delayed, it is due.
  local function wake_suspended(id, key, n, waits, size)
    if waits == 0 or n < waits then return end
    if call('ZSCORE', DUE, id) then
      local entry = call('HGET', DELAYED, id)
      if is_entry(entry) then
        call('HSET', DELAYED, id, sub(entry, 1, ENTRY_READY_AT - 1) .. pack('>I6', now) .. sub(entry, ENTRY_KIND))
      end
      state.is_earlier = true
      call('ZADD', DUE, 'XX', now, id)
    end
    call('HSET', key, '', pack('>I4I4', 0, size))
  end

  -- Stores ends of children as steps of their parent, given as pairs of names and ends: in any case, but without their outputs if the
  -- parent would have too many bytes of steps with them. If a command fails, this is repeated.
  local function add_child_ends(parent, ends)
    local key, names, rows = STEPS .. ':' .. parent, {}, {}
    for i = 1, #ends, 2 do names[#names + 1] = ends[i] end
    local n, waits, size, waits_for = steps_of(parent)
    local row = call('HGET', STEPS, parent)
    local had = math.max(n, number_in(row))
    for i, found in ipairs(call('HMGET', key, unpack(names))) do
      if not found then
        local name = names[i]
        local value = fitted(ends[2 * i], MAX_BYTES_WITH_OUTPUTS - size - #name)
        n, had, size = n + 1, had + 1, size + #name + #value
        rows[#rows + 1], rows[#rows + 2] = name, pack('>I4I6', n, now) .. value
      end
    end
    if #rows > 0 then
      -- A number that is written too early would make a step seem to be lost.
      if not row then add_to_steps(parent, 0) end
      rows[#rows + 1], rows[#rows + 2] = '', pack('>I4I4', waits, size) .. waits_for
      call('HSET', key, unpack(rows))
    end
    -- Steps that are lost still count.
    add_to_steps(parent, had)
    wake_suspended(parent, key, n, waits, size)
  end

  -- Does the same, and returns `true`. If the steps of the parent are a value of another type, returns `false`: maintenance removes it, and
  -- finds it by the row in `steps`. Then this is repeated.
  local function try_child_ends(parent, ends)
    if unless_of_other_type(add_child_ends, parent, ends) then return true end
    if call('HEXISTS', STEPS, parent) == 0 then add_to_steps(parent, 1) end
    return false
  end

  -- Returns `true` if a task keeps its steps: it has not ended, or it is a dead letter.
  local function has_kept_steps(id) return call('HEXISTS', ALIVE, id) == 1 or call('ZSCORE', DIED, id) end

  -- Stores the steps of these notes. Returns the children whose notes are no longer needed: the step is stored, or the parent has no
  -- steps any more and `is_of_parents` says that this partition is that of the parents.
  local function tell(notes, is_of_parents)
    local parents, ends, gone = {}, {}, {}
    for i = 1, #notes, 2 do
      local parent = sub(notes[i + 1], 1, 16)
      if not ends[parent] then
        parents[#parents + 1] = parent
        ends[parent] = { children = {} }
      end
      local of = ends[parent]
      of.children[#of.children + 1] = notes[i]
      of[#of + 1], of[#of + 2] = child_step(notes[i]), sub(notes[i + 1], 17)
    end
    for _, parent in ipairs(parents) do
      local of = ends[parent]
      local is_here = has_kept_steps(parent)
      local is_told = is_here and try_child_ends(parent, of)
      for _, child in ipairs((is_told or is_of_parents and not is_here) and of.children or {}) do gone[#gone + 1] = child end
    end
    return gone
  end

  -- Stores the steps of those parents that are in this partition, and removes their notes. If a command fails, the notes stay.
  local function tell_parents(notes)
    if #notes == 0 then return end
    local is_done, gone = pcall(function()
      local is_only = call('HGET', META, 'partitions') == '1'
      local gone = tell(notes, is_only)
      if #gone > 0 then call('HDEL', NOTES, unpack(gone)) end
      return gone
    end)
    if is_done and 2 * #gone == #notes then return end
    meta[8] = '2'
    pcall(call, 'HSET', META, 'steps', 2)
    -- The worker that takes the next turn relays them.
    state.is_earlier = true
  end

  made_children = {
    end_of_done = end_of_done, end_of_dead = end_of_dead, add_note = add_note, new_notes = new_notes,
    tell = tell, tell_parents = tell_parents,
  }
  return made_children
end
