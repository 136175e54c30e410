-- Removes the progress of tasks that have ended. If a command fails here, a row may remain. It is never returned, since
-- `read_progress.lua` looks for the task first. A script that stores another task with the same id removes the row (`add_tasks.lua`,
-- `replay.lua`), and so does maintenance.
--
-- Needs no other part.
-- Defines: has_progress, remove_progress.

-- `true` if any task may have progress, or nil if the script has not checked this yet.
local has_progress

local function remove_progress(ids)
  if #ids == 0 then return end
  if has_progress == nil then has_progress = call('EXISTS', PROGRESS) == 1 end
  if has_progress then call('HDEL', PROGRESS, unpack(ids)) end
end
