-- Removes stored tasks. Entries in lists are removed first: a task whose entry cannot be removed keeps its rows.
--
-- Needs: undo/begin.
-- Defines: undo.enqueue.
function undo.enqueue()
  local ids, delayed = {}, every_second(u.delayed or {}, 1)
  for i, entry in ipairs(u.entries) do ids[i] = string.sub(entry, 1, ENTRY_ID_END) end
  local is_written = {}
  for _, id in ipairs(every_second(u.payloads or {}, 1)) do is_written[id] = true end
  -- Only payloads that this request wrote are removed: a replaced task may have one from before.
  local function remove_rows(some)
    local payloads = {}
    for _, id in ipairs(some) do
      if is_written[id] then payloads[#payloads + 1] = id end
    end
    try_all('HDEL', ALIVE, some)
    try_all('HDEL', PAYLOADS, payloads)
  end
  if u.session then restore_session() end
  remove_pushed(u.bundles or #u.entries > 0 and { { key = READY, entries = u.entries, is_pushed = u.is_pushed } })
  if not state.is_partial then remove_rows(ids) end
  local was_partial = state.is_partial
  state.is_partial = false
  try_all('ZREM', DUE, delayed)
  if not state.is_partial then
    remove_rows(delayed)
    try_all('HDEL', DELAYED, delayed)
  end
  state.is_partial = state.is_partial or was_partial
  if u.restore then u.restore(try) end
end
