-- Removes the progress of tasks that have ended. If a command fails here, a row may stay. It is never shown, since `read_progress.lua`
-- looks for the task first; a script that stores another task with the id removes it (`add_tasks.lua`, `replay.lua`), and so does
-- maintenance.

-- `true` if a task may have progress, or nil if that is not known yet.
local has_progress

local function remove_progress(ids)
  if #ids == 0 then return end
  if has_progress == nil then has_progress = call('EXISTS', PROGRESS) == 1 end
  if has_progress then call('HDEL', PROGRESS, unpack(ids)) end
end
