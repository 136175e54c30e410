-- Returns tasks that were claimed for an idle session to the main list, which contained no other entry.
--
-- Needs: undo/begin.
-- Defines: undo.push_claim.
function undo.push_claim()
  if not has_entries(READY, '', 0, u.entries) then try_all('LPUSH', READY, reversed(u.entries)) end
  try('HDEL', RUNNING, unpack(u.ids))
  try('HDEL', CLAIMS, u.epoch, u.epoch .. 'n', u.epoch .. 'o')
  try('ZREM', LEASE, u.epoch)
  try('HSET', SESSIONS, u.session, u.row)
  local key = u.key
  try('ZADD', key, u.score, u.member)
end
