-- Moves tasks back to their former queues.
--
-- Needs: undo/begin.
-- Defines: undo.move_tasks.
function undo.move_tasks()
  remove_pushed(u.bundles)
  try_all('HSET', ALIVE, u.alive)
  try_all('HSET', DELAYED, u.delayed)
  for i = 1, #u.tombstone_rows, 2 do
    if u.tombstone_rows[i + 1] > 0 then
      try('HSET', TOMBSTONES, u.tombstone_rows[i], u.tombstone_rows[i + 1])
    else
      try('HDEL', TOMBSTONES, u.tombstone_rows[i])
    end
  end
  if #u.tombstone_rows > 0 then try('HSET', META, 'tombstones', u.tombstones) end
end
