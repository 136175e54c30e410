-- Restores a schedule, and then removes the tasks that were stored with it. If the schedule cannot be restored, the tasks stay,
-- since its row says that they are stored. If the tasks cannot be removed, firing the schedule again finds them, since they have
-- the same ids.
--
-- Needs: undo/begin, undo/enqueue.
-- Defines: undo.schedule.
--
-- ARGV[1] -> name of the schedule
function undo.schedule()
  if u.schedule.row then try('HSET', SCHEDULES, ARGV[1], u.schedule.row) else try('HDEL', SCHEDULES, ARGV[1]) end
  local key, time = u.schedule.times, u.schedule.time
  if time then try('ZADD', key, time, ARGV[1]) else try('ZREM', key, ARGV[1]) end
  if u.schedule.other_times ~= key then try('ZREM', u.schedule.other_times, ARGV[1]) end
  if not state.is_partial then undo.enqueue() end
end
