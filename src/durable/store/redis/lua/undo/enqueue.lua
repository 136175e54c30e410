-- Takes back stored tasks. Entries in lists go first: a task that cannot be taken back keeps its rows.
--
-- Needs: begin.
function undo.enqueue()
  local ids, later = {}, every_second(u.later or {}, 1)
  for i, entry in ipairs(u.entries) do ids[i] = string.sub(entry, 1, 16) end
  local function forget(some)
    try_all('HDEL', ALIVE, some)
    if u.payloads then try_all('HDEL', PAYLOADS, some) end
  end
  restore_session()
  take_back_all(u.groups or #u.entries > 0 and { { key = READY, entries = u.entries, is_pushed = u.is_pushed } })
  if not state.is_half then forget(ids) end
  local was_half = state.is_half
  state.is_half = false
  try_all('ZREM', DUE, later)
  if not state.is_half then
    forget(later)
    try_all('HDEL', DELAYED, later)
  end
  state.is_half = state.is_half or was_half
end
