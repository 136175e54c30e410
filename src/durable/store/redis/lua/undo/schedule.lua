-- Restores a schedule, and then removes the tasks that were stored with it. If it cannot be restored, the tasks stay: the store
-- says that they are stored. If they cannot be removed, the schedule stores them again, under the same ids.
function undo.schedule()
  try('HSET', META, 'schedules', '')
  if u.row then try('HSET', SCHEDULES, ARGV[1], u.row) else try('HDEL', SCHEDULES, ARGV[1]) end
  local key, time = u.times, u.time
  if time > 0 then try('ZADD', key, time, ARGV[1]) else try('ZREM', key, ARGV[1]) end
  if u.other_times ~= key then try('ZREM', u.other_times, ARGV[1]) end
  undo.enqueue()
end
