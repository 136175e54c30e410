-- Restores the steps of a task.
--
-- Needs: undo/begin.
-- Defines: restore_steps.
local function restore_steps(cut)
  if not cut then return end
  local key, rows = cut.key, cut.rows
  try('HDEL', key, cut.name)
  for i = 1, #rows, 2 do try('HSET', key, rows[i], rows[i + 1]) end
  if cut.count then try('HSET', STEPS, cut.id, cut.count) else try('HDEL', STEPS, cut.id) end
end
