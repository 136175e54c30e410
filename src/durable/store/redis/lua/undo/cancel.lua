-- Restores cancelled tasks.
--
-- Needs: undo/begin.
-- Defines: undo.cancel.
function undo.cancel()
  try_all('HSET', ALIVE, u.alive)
  restore_errors(u.ended, u.errors)
  try_all('HSET', DELAYED, u.delayed)
  try_all('ZADD', DUE, u.dues)
  try_all('SADD', QUARANTINED, u.quarantined)
  for i = 1, #u.tombstone_rows, 2 do
    if u.tombstone_rows[i + 1] > 0 then
      try('HSET', TOMBSTONES, u.tombstone_rows[i], u.tombstone_rows[i + 1])
    else
      try('HDEL', TOMBSTONES, u.tombstone_rows[i])
    end
  end
  if #u.tombstone_rows > 0 then try('HSET', META, 'tombstones', u.tombstones) end
  try_all('HDEL', RESULTS, every_second(u.results, 1))
  try_all('HDEL', NOTES, every_second(u.notes, 1))
  for i, flag in ipairs(u.before or {}) do
    if not flag then try('HDEL', CANCEL, u.flags[2 * i - 1]) end
  end
end
