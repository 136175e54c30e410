-- Restores the settings of a queue.
--
-- Needs: undo/begin.
-- Defines: undo.queue.
function undo.queue()
  if u.row then try('HSET', QUEUES, 's' .. u.queue, u.row) else try('HDEL', QUEUES, 's' .. u.queue) end
end
