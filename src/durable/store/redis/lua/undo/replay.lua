-- Restores dead letters.
--
-- Needs: undo/begin, undo/cut_steps.
-- Defines: undo.revive.
function undo.revive()
  if #u.ids == 0 then return end
  remove_pushed(u.bundles)
  restore_errors(u.ids, u.errors)
  restore_steps(u.cut)
  try_all('HSET', STEPS, u.counts_before)
  try('ZADD', DIED, unpack(u.scores))
  try('HSET', DEAD, unpack(u.dead))
  for i, key in ipairs(u.keys) do
    if u.keys_before[i] then try('HSET', HELD_KEYS, key, u.keys_before[i]) else try('HDEL', HELD_KEYS, key) end
  end
  if u.is_replay then try('HDEL', ALIVE, unpack(u.ids)) end
end
