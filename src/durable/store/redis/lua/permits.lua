-- Takes permits back from tasks of named queues that stop running: see `queues.lua`.
--
-- Needs: transaction, entry.

-- Adds a task that stops running to the tasks of its queue in `permits`, if it has a permit. `row` is its row in `running`.
local function add_permit(permits, id, row)
  if #row < RUNNING_PAYLOAD - 1 then return end
  local queue = queue_of(row, RUNNING_ENTRY - 1)
  if queue == '' then return end
  permits[queue] = permits[queue] or {}
  permits[queue][#permits[queue] + 1] = id
end

-- Takes permits back from tasks.
local function take_permits(permits)
  for queue, ids in pairs(permits) do
    local key = PERMITS .. ':' .. queue
    call('SREM', key, unpack(ids))
  end
end

-- Records that the queues have free permits. Later, workers are woken for them.
local function note_freed(permits)
  for queue in pairs(permits) do state.freed[queue] = true end
end
