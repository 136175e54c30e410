-- Delays tasks that were made due again, until their former times, and restores removed steps and the record of a replay.
--
-- Needs: undo/begin, undo/cut_steps.
-- Defines: undo.run_now.
function undo.run_now()
  remove_pushed(u.bundles)
  restore_steps(u.cut)
  if u.record then try('HSET', u.record.key, u.record.name, u.record.before) end
  try_all('HSET', DELAYED, u.delayed)
  try_all('ZADD', DUE, u.dues)
  try_all('HSET', HELD_KEYS, u.keys)
  try_all('SREM', QUARANTINED, u.quarantined)
end
