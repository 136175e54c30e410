-- The beginning of every script: short names, the time, and a check of the layout. A layout that is not a number is
-- damaged, and is not that of another version: `open.lua` refuses it, and maintenance writes it again.
--
-- The lines before this part set `micros`.
--
-- Errors:
-- LAYOUT <found> <known> -> this process does not know the layout; `known` is the newest that it knows
-- UNDONE <error>         -> the layout cannot be read
local call, concat = redis.call, table.concat
local sub, byte, char = string.sub, string.byte, string.char
local pack, number_at = struct.pack, struct.unpack
local now = math.floor(micros / 1000)
local BASE = sub(META, 1, -5)

local meta = redis.pcall('HMGET', META, 'layout', 'routes', 'census', 'epoch', 'tombstones')
if meta.err then return redis.error_reply('UNDONE ' .. meta.err) end
if meta[1] and tonumber(meta[1]) ~= LAYOUT and string.find(meta[1], '^%d+$') then
  local found = tonumber(meta[1])
  if found < OLDEST_LAYOUT or found > LAYOUT then return redis.error_reply('LAYOUT ' .. meta[1] .. ' ' .. LAYOUT) end
end
