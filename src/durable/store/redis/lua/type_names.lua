-- Reads the names of types.
--
-- Needs no other part.
-- Defines: type_of.
local types = {}

-- Returns the name and the queue of a kind. If no client has recorded the kind, the name is false.
local function type_of(kind)
  if not types[kind] then
    local row = call('HGET', TYPES, kind) or ''
    local length = byte(row, TYPE_QUEUE_LENGTH)
    local is_known = length and #row >= TYPE_QUEUE_LENGTH + length
    types[kind] = is_known and { sub(row, TYPE_QUEUE + length), sub(row, TYPE_QUEUE, TYPE_QUEUE + length - 1) } or { false, '' }
  end
  return types[kind][1], types[kind][2]
end
