-- Moves entries back from other lists. The drained list is trimmed last, so it usually still has all of them.
--
-- Needs: undo/begin.
-- Defines: undo.drain.
function undo.drain()
  local source = u.key
  if try('LLEN', source) < u.length then try_all('LPUSH', source, reversed(u.entries)) end
  for _, bundle in ipairs(u.bundles) do
    local key = bundle.key
    if bundle.before == 0 then
      try('LTRIM', key, 1, 0)
    elseif bundle.before and try('LLEN', key) > bundle.before then
      try('LTRIM', key, 0, bundle.before - 1)
    end
  end
end
