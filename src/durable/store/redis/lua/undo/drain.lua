-- Moves entries back from other lists. The drained list is trimmed last, so it usually still has all of them.
function undo.drain()
  local source = u.key
  if try('LLEN', source) < u.length then try_all('LPUSH', source, reversed(u.entries)) end
  for _, group in ipairs(u.groups) do
    local key = group.key
    if group.before == 0 then
      try('LTRIM', key, 1, 0)
    elseif try('LLEN', key) > group.before then
      try('LTRIM', key, 0, group.before - 1)
    end
  end
end
