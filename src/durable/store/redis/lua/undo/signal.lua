-- Removes a step that was stored, and delays the task until its former time.
--
-- Needs: undo/begin.
-- Defines: undo.signal.
function undo.signal()
  if u.due then try('ZADD', DUE, 'XX', u.due, u.id) end
  if u.entry then try('HSET', DELAYED, u.id, u.entry) end
  if u.is_new then try('HDEL', u.key, u.name) end
  if u.count then try('HSET', STEPS, u.id, u.count) else try('HDEL', STEPS, u.id) end
  if u.row then try('HSET', u.key, '', u.row) elseif u.is_new then try('HDEL', u.key, '') end
end
