-- Puts tasks back that were moved to other lists.
--
-- Needs: begin.
function undo.drain()
  take_back_all(u.groups)
  if #u.entries > 0 and not has_entries(u.key, 0, u.entries) then
    local key = u.key
    try_all('LPUSH', key, reversed(u.entries))
  end
end
