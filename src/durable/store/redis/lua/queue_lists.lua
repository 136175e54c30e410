-- Finds the lists in which tasks of a queue wait.
--
-- Needs: lists.
-- Defines: lists_of_queue.
local made_kinds

-- Returns the kinds that clients have recorded, by queue: those in the first rows of `types`.
local function kinds_by_queue()
  if made_kinds then return made_kinds end
  made_kinds = {}
  local cursor, examined = '0', 0
  repeat
    local page = call('HSCAN', TYPES, cursor, 'COUNT', 100)
    for i = 1, #page[2], 2 do
      local kind, row = page[2][i], page[2][i + 1]
      local length = byte(row, TYPE_QUEUE_LENGTH)
      if #kind == 8 and length and #row >= TYPE_QUEUE_LENGTH + length then
        local queue = sub(row, TYPE_QUEUE, TYPE_QUEUE + length - 1)
        made_kinds[queue] = made_kinds[queue] or {}
        table.insert(made_kinds[queue], kind)
      end
    end
    cursor, examined = page[1], examined + #page[2] / 2
  until cursor == '0' or examined >= MAX_HEAD_LISTS
  return made_kinds
end

-- Returns the lists in which tasks of a queue may wait, including those that no worker reads.
local function lists_of_queue(queue)
  local found, seen = {}, {}
  local function add(path)
    for at = 1, #path, 16 do
      local list = sub(path, at, at + 15)
      if not seen[list] then seen[list], found[#found + 1] = true, list end
    end
  end
  if queue == '' then add(MAIN) end
  add(call('HGET', ROUTES, 'q' .. queue) or '')
  for _, kind in ipairs(kinds_by_queue()[queue] or {}) do add(lists().path_of(kind)) end
  return found
end
