-- Returns tasks that were to end, to wait or to be delayed to their claims.
--
-- Needs: undo/begin.
-- Defines: undo.outcomes.
function undo.outcomes()
  local rows = {}
  for i, id in ipairs(u.ids) do rows[2 * i - 1], rows[2 * i] = id, u.rows[i] end
  for _, bundle in ipairs(u.bundles or {}) do
    local key, n = bundle.key, #bundle.entries
    if has_entries(key, bundle.group or '', 0, reversed(bundle.entries), bundle.before) then try('LTRIM', key, n, -1) end
  end
  restore_errors(u.failed, u.errors_before)
  try_all('SREM', QUARANTINED, u.quarantined)
  try_all('HSET', RUNNING, rows)
  try_all('HSET', ALIVE, u.alive)
  try_all('HSET', CANCEL, u.flags)
  try_all('ZREM', DIED, every_second(u.died, 2))
  try_all('HDEL', DEAD, every_second(u.dead, 1))
  try_all('ZADD', DUE, u.removed_due)
  try_all('ZREM', DUE, every_second(u.due, 2))
  try_all('HDEL', DELAYED, every_second(u.delayed, 1))
  try_all('HDEL', RESULTS, every_second(u.results, 1))
  try_all('HDEL', NOTES, every_second(u.notes, 1))
  restore_permits(u.permits or {})
end
