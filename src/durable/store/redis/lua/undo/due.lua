-- Delays tasks again that were due, in their order.
--
-- Needs: undo/begin.
-- Defines: undo.due.
function undo.due()
  remove_pushed(u.bundles)
  for i, id in ipairs(u.ids) do
    try('HSET', DELAYED, id, u.entries[i])
    try('ZADD', DUE, u.scores[i], id)
  end
  try_all('SREM', QUARANTINED, u.quarantined)
end
