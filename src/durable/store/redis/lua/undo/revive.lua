-- Makes letters dead again.
--
-- Needs: begin.
function undo.revive()
  if #u.ids == 0 then return end
  take_back_all(u.groups)
  restore_errors(u.ids, u.errors)
  try('ZADD', DIED, unpack(u.scores))
  try('HSET', DEAD, unpack(u.letters))
  if u.is_replay then try('HDEL', ALIVE, unpack(u.ids)) end
end
