-- Restores completed tasks. A row of `running` contains the data of the row in `alive`.
--
-- Needs: undo/begin.
-- Defines: undo.done.
function undo.done()
  local running, alive, flags = {}, {}, {}
  for _, row in ipairs(u.rows) do
    if row then
      local at = #alive + 1
      local id = u.ids[(at + 1) / 2]
      running[at], running[at + 1] = id, row
      alive[at], alive[at + 1] = id, u.alive_row(row, RUNNING_EPOCH_END)
    end
  end
  for i, flag in ipairs(u.flags or {}) do
    if flag then flags[#flags + 1], flags[#flags + 2] = u.ids[i], flag end
  end
  try_all('HSET', RUNNING, running)
  try_all('HSET', ALIVE, alive)
  try_all('HSET', CANCEL, flags)
  restore_errors(u.failed, u.errors or {})
  try_all('HDEL', RESULTS, every_second(u.results, 1))
  try_all('HDEL', NOTES, every_second(u.notes or {}, 1))
  restore_permits(u.permits or {})
end
