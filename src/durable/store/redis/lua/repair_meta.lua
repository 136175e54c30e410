-- Removes `meta` if it holds a value of another type. A client that maintains a store has opened it and knows its layout,
-- so the layout can be written again. This runs before `base.lua`, which reads `meta`.
--
-- Needs no other part.
-- Defines nothing.
do
  local found = redis.pcall('HMGET', META, 'layout')
  if found.err and string.find(found.err, 'WRONGTYPE', 1, true) then redis.call('SUNIONSTORE', META, NONE) end
end
